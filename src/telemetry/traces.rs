//! Traces: spans become OpenTelemetry spans, sent by OTLP over gRPC; and their context as a W3C
//! `traceparent`, which the journal keeps.

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
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
    component: String,
    provider: SdkTracerProvider,
}

/// Traces of `component`, as the standard environment `variables` ask for them; `None` if they are
/// disabled. Headers, time limits, the sampler and resource attributes are read by the SDK itself.
///
/// # Errors
/// An endpoint that can't be used; what is wrong, for the log.
pub(super) fn from(
    component: &str,
    variables: impl Fn(&str) -> Option<String>,
) -> Result<Option<Traces>, String> {
    let set = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
    if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let mut resource = Resource::builder();
    if set("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(component.to_owned());
    }
    let mut provider = SdkTracerProvider::builder().with_resource(resource.build());
    let endpoint = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or(set("OTEL_EXPORTER_OTLP_ENDPOINT"));
    if let Some(endpoint) = endpoint {
        let protocol =
            set("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or(set("OTEL_EXPORTER_OTLP_PROTOCOL"));
        check(&endpoint, protocol.as_deref())?;
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&endpoint)
            .build();
        provider = provider.with_batch_exporter(exporter.map_err(|e| format!("{endpoint}: {e}"))?);
    }
    Ok(Some(Traces {
        component: component.to_owned(),
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
        let tracer = self.provider.tracer(self.component.clone());
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
        let traces = from("test", |_| None).unwrap().unwrap();
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

    /// Takes one OTLP request; returns its path and body.
    async fn collect(listener: tokio::net::TcpListener) -> (String, Vec<u8>) {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        // Its frames move only while somebody asks for the next request.
        let drive = async { while connection.accept().await.is_some() {} };
        let answer = async {
            let path = request.uri().path().to_owned();
            let (mut body, mut bytes) = (request.into_body(), Vec::new());
            while let Some(data) = body.data().await {
                bytes.extend_from_slice(&data.unwrap());
            }
            let response = http::Response::builder().header("content-type", "application/grpc");
            let response = response.body(()).unwrap();
            let mut stream = respond.send_response(response, false).unwrap();
            stream.send_data(vec![0; 5].into(), false).unwrap();
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            stream.send_trailers(trailers).unwrap();
            (path, bytes)
        };
        let (taken, ()) = tokio::join!(answer, drive);
        taken
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn spans_reach_the_collector_before_the_end() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let collector = tokio::spawn(collect(listener));
        let variables =
            |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| endpoint.clone());
        let traces = from("the-service", variables).unwrap().unwrap();
        let subscriber = tracing_subscriber::registry().with(traces.layer());
        tracing::subscriber::with_default(subscriber, || {
            info_span!("the-step", exporter = "pool-1").in_scope(|| {});
        });
        traces.flush().await;
        let (path, body) = collector.await.unwrap();
        assert_eq!(
            path,
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        );
        let text = String::from_utf8_lossy(&body);
        for part in ["the-service", "the-step", "pool-1"] {
            assert!(text.contains(part), "{part} is not in {text:?}");
        }
    }

    #[test]
    fn disabled_there_are_none() {
        let disabled = |name: &str| (name == "OTEL_SDK_DISABLED").then(|| "TRUE".to_owned());
        assert!(from("test", disabled).unwrap().is_none());
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
