//! Traces: spans become OpenTelemetry spans, sent by OTLP over gRPC; and their context as a W3C
//! `traceparent`, which the journal keeps.

use crate::cluster::COMPONENT;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::collections::HashMap;
use std::time::Duration;
use tracing::{Span, Subscriber, debug};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

/// How long the last spans may take to leave.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);
/// The header, and field of the journal, that carries a span's identity.
const TRACEPARENT: &str = "traceparent";
/// Our spans, without those of the libraries that we use.
const OURS: &str = "off,exporter_set_controller=info,journal=info";

/// The source of our spans.
pub(super) struct Traces {
    provider: SdkTracerProvider,
}

/// Traces as the standard environment variables ask for them; `None` if they are disabled.
///
/// # Errors
/// An endpoint that can't be used; what is wrong, for the log.
pub(super) fn from_env() -> Result<Option<Traces>, String> {
    let set = |name: &str| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.trim().is_empty())
    };
    if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let mut resource = Resource::builder();
    if set("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(COMPONENT);
    }
    let mut provider = SdkTracerProvider::builder().with_resource(resource.build());
    let endpoint = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or(set("OTEL_EXPORTER_OTLP_ENDPOINT"));
    if let Some(endpoint) = endpoint {
        let protocol =
            set("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or(set("OTEL_EXPORTER_OTLP_PROTOCOL"));
        check(&endpoint, protocol.as_deref())?;
        let exporter = SpanExporter::builder().with_tonic().build();
        provider = provider.with_batch_exporter(exporter.map_err(|e| format!("{endpoint}: {e}"))?);
    }
    Ok(Some(Traces {
        provider: provider.build(),
    }))
}

fn check(endpoint: &str, protocol: Option<&str>) -> Result<(), String> {
    if let Some(protocol) = protocol.filter(|protocol| *protocol != "grpc") {
        return Err(format!(
            "OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: only grpc is there; use the collector's gRPC port (4317)"
        ));
    }
    if !endpoint.starts_with("http://") {
        return Err(format!(
            "OTLP endpoint {endpoint}: only http:// is there; use a collector inside the cluster"
        ));
    }
    Ok(())
}

impl Traces {
    /// The layer that turns our spans into OpenTelemetry's.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer = self.provider.tracer(COMPONENT);
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_filter(EnvFilter::new(OURS))
    }

    /// Sends what waits. The exporter needs the runtime that it would block: hence another thread.
    pub(super) async fn flush(self) {
        let provider = self.provider;
        let done = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_LIMIT));
        if let Ok(Err(error)) = done.await {
            debug!("the last spans are lost: {error}");
        }
    }
}

/// The current span's identity as a W3C `traceparent`, e.g.
/// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`; `None` outside a span, or if there is
/// no tracing. Asking starts the span: its parent can't be set afterwards.
#[must_use]
pub fn current_traceparent() -> Option<String> {
    let context = Span::current().context();
    if !context.span().span_context().is_valid() {
        return None;
    }
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut carrier);
    carrier.remove(TRACEPARENT)
}

/// Makes `span` a child of the span that `traceparent` names, which may have been another process's.
/// Must come before `span` is entered. A `traceparent` that can't be read changes nothing.
pub fn set_parent(span: &Span, traceparent: &str) {
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    let parent = TraceContextPropagator::new().extract(&carrier);
    if !parent.span().span_context().is_valid() {
        debug!("'{traceparent}' is no traceparent");
        return;
    }
    if let Err(error) = span.set_parent(parent) {
        debug!("a span keeps its parent: {error}");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tracing::info_span;
    use tracing_subscriber::layer::SubscriberExt;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn traced<T>(act: impl FnOnce() -> T) -> T {
        let traces = Traces {
            provider: SdkTracerProvider::builder().build(),
        };
        let subscriber = tracing_subscriber::registry().with(traces.layer());
        tracing::subscriber::with_default(subscriber, act)
    }

    #[test]
    fn a_trace_goes_on_where_another_process_left_it() {
        let (child, grandchild) = traced(|| {
            let span = info_span!("resumed");
            set_parent(&span, PARENT);
            let _in = span.enter();
            let child = current_traceparent().unwrap();
            let _deeper = info_span!("deeper").entered();
            (child, current_traceparent().unwrap())
        });
        let part = |text: &str, n| text.split('-').nth(n).unwrap().to_owned();
        for span in [&child, &grandchild] {
            assert_eq!(part(span, 1), part(PARENT, 1), "the same trace");
            assert_eq!(part(span, 3), "01", "sampled, as the parent was");
        }
        assert_ne!(part(&child, 2), part(PARENT, 2));
        assert_ne!(part(&child, 2), part(&grandchild, 2));
    }

    #[test]
    fn what_is_no_traceparent_begins_a_new_trace() {
        let own = traced(|| {
            let span = info_span!("fresh");
            set_parent(&span, "00-nonsense");
            span.in_scope(current_traceparent)
        });
        assert!(own.is_some_and(|own| own.len() == PARENT.len()));
    }

    #[test]
    fn outside_a_span_there_is_nothing_to_name() {
        assert_eq!(traced(current_traceparent), None);
        assert_eq!(current_traceparent(), None);
    }

    #[test]
    fn an_endpoint_that_cannot_work_is_refused_with_a_remedy() {
        assert!(check("http://jaeger:4317", Some("grpc")).is_ok());
        assert!(check("http://jaeger:4317", None).is_ok());
        assert!(
            check("https://jaeger:4317", None)
                .unwrap_err()
                .contains("http://")
        );
        assert!(
            check("http://j:4318", Some("http/protobuf"))
                .unwrap_err()
                .contains("4317")
        );
    }
}
