//! Log lines as JSON objects, with the base fields of Jumpstarter's logging convention (JEP-0013):
//! `ts`, `level`, `msg`, `component`, `namespace`, then the fields of the spans around the event
//! (outermost first) and its own.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};
use std::fmt;
use std::io::Write;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Names that a field can't take, because the line has them already.
const BASE: [&str; 5] = ["ts", "level", "msg", "component", "namespace"];

/// Writes each event as one line.
pub(super) struct JsonLines<W> {
    writer: W,
    component: String,
    namespace: String,
}

impl<W> JsonLines<W> {
    pub(super) fn new(writer: W, component: &str, namespace: &str) -> Self {
        Self {
            writer,
            component: component.to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    fn line(&self, now: Timestamp, level: Level, mut fields: Fields) -> String {
        let level = match level {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG | Level::TRACE => "debug",
        };
        let base = [
            Value::from(format!("{now:.3}")),
            Value::from(level),
            Value::from(std::mem::take(&mut fields.message)),
            Value::from(self.component.as_str()),
            Value::from(self.namespace.as_str()),
        ];
        let mut line = String::from("{");
        let base = BASE.into_iter().map(str::to_owned).zip(base);
        for (name, value) in base.chain(fields.others) {
            if line.len() > 1 {
                line.push(',');
            }
            line.push_str(&Value::from(name).to_string());
            line.push(':');
            line.push_str(&value.to_string());
        }
        line.push_str("}\n");
        line
    }
}

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(|scope| scope.from_root())
        {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                let others = of_span.others.iter();
                fields
                    .others
                    .extend(others.map(|(k, v)| (k.clone(), v.clone())));
            }
        }
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = self.line(Timestamp::now(), *metadata.level(), fields);
        // There is nobody to tell if even this fails.
        let _ = self
            .writer
            .make_writer_for(metadata)
            .write_all(line.as_bytes());
    }
}

/// The fields of a span or an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let name = field.name();
        if name == "message" {
            self.message = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            return;
        }
        // Where a line of another crate comes from, and what is meant for traces alone.
        if name.starts_with("log.") || name.starts_with("otel.") {
            return;
        }
        let name = if BASE.contains(&name) {
            format!("{name}_")
        } else {
            name.to_owned()
        };
        self.others.insert(name, value);
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::from(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::from(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::from(format!("{value:?}")));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing::{debug, info, info_span, warn};
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(act: impl FnOnce()) -> Vec<String> {
        let sink = Sink::default();
        let writer = sink.clone();
        let layer = JsonLines::new(move || writer.clone(), "controller", "lab");
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, act);
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_has_the_base_fields_first() {
        let json = JsonLines::new(io::sink, "controller", "lab");
        let mut fields = Fields {
            message: "up".to_owned(),
            ..Fields::default()
        };
        fields
            .others
            .insert("exporter".to_owned(), Value::from("pool-1"));
        let time = "2026-04-28T10:15:30.123456Z".parse().unwrap();
        assert_eq!(
            json.line(time, Level::INFO, fields),
            concat!(
                r#"{"ts":"2026-04-28T10:15:30.123Z","level":"info","msg":"up","#,
                r#""component":"controller","namespace":"lab","exporter":"pool-1"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn fields_of_spans_and_event_are_joined_and_text_stays_on_its_line() {
        let lines = lines(|| {
            let outer = info_span!("deploy", exporter = "pool-1", host = tracing::field::Empty);
            outer.record("host", "lab1");
            let _outer = outer.enter();
            let _inner = info_span!("step", operation = "start", attempt = 1).entered();
            warn!(
                attempt = 2,
                level = "mine",
                ok = false,
                "two\nlines \"quoted\""
            );
        });
        assert_eq!(lines.len(), 1);
        let line: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(line["msg"], "two\nlines \"quoted\"");
        assert_eq!(
            (&line["level"], &line["level_"]),
            (&"warn".into(), &"mine".into())
        );
        assert_eq!(
            (&line["exporter"], &line["host"]),
            (&"pool-1".into(), &"lab1".into())
        );
        assert_eq!((&line["attempt"], &line["ok"]), (&2.into(), &false.into()));
        assert_eq!(line["operation"], "start");
    }

    #[test]
    fn levels_have_the_names_of_the_convention() {
        let lines = lines(|| {
            info!("a");
            debug!("b");
            tracing::trace!("c");
            tracing::error!("d");
        });
        let level = |line: &String| serde_json::from_str::<Value>(line).unwrap()["level"].clone();
        let levels: Vec<_> = lines.iter().map(level).collect();
        assert_eq!(levels, ["info", "debug", "debug", "error"]);
    }
}
