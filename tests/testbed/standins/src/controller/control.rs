//! The endpoint for tests: HTTP with JSON answers.
//!
//! | request | answer |
//! |---|---|
//! | `GET /healthz` | `"ok"` |
//! | `GET /exporters` | list of [`Connected`] exporters, by namespace and name |
//! | `GET /exporters/NAMESPACE/NAME/report` | the last [`Report`]; 404 if it isn't connected |
//! | `GET /exporters/NAMESPACE/NAME/report?fresh` | a report that is taken now; 504 if it doesn't come in five seconds |
//!
//! Anything else is 404. Each answer ends its connection.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::store::Key;
use crate::log::log;
use crate::report::Report;

/// Limit on a fresh report, and on reading a request.
const LIMIT: Duration = Duration::from_secs(5);

/// An exporter that is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connected {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The lease that it was last told to serve.
    pub lease: Option<String>,
    /// Its last report.
    pub report: Report,
}

/// What a test asks the brain.
#[derive(Debug)]
pub enum Question {
    /// Who is connected?
    List(oneshot::Sender<Vec<Connected>>),
    /// What did this exporter last report?
    Last(Key, oneshot::Sender<Report>),
    /// What does this exporter see now?
    Fresh(Key, oneshot::Sender<Report>),
}

/// Answers requests for ever.
pub async fn serve(listener: TcpListener, questions: mpsc::Sender<Question>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let questions = questions.clone();
                tokio::spawn(async move {
                    if let Err(error) = answer(stream, &questions).await {
                        log(&format!("control request: {error}"));
                    }
                });
            }
            Err(error) => {
                log(&format!("can't accept a control request: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, questions: &mpsc::Sender<Question>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut request, mut line) = (String::new(), String::new());
    timeout(LIMIT, async {
        stream.read_line(&mut request).await?;
        // Headers don't matter, but a client wants them read.
        while stream.read_line(&mut line).await? > 2 {
            line.clear();
        }
        io::Result::Ok(())
    })
    .await
    .map_err(io::Error::other)??;
    let target = request
        .strip_prefix("GET ")
        .and_then(|rest| rest.split(' ').next());
    let (status, body) = respond(target.unwrap_or_default(), questions).await;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

async fn respond(target: &str, questions: &mpsc::Sender<Question>) -> (&'static str, String) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["healthz"] => ok(&"ok"),
        ["exporters"] => match ask(questions, Question::List).await {
            Ok(list) => ok(&list),
            Err(failure) => failure,
        },
        ["exporters", namespace, name, "report"] => {
            let key = ((*namespace).to_owned(), (*name).to_owned());
            let question = |answer| match query {
                "fresh" => Question::Fresh(key, answer),
                _ => Question::Last(key, answer),
            };
            match ask(questions, question).await {
                Ok(report) => ok(&report),
                Err(failure) => failure,
            }
        }
        _ => error("404 Not Found", "no such page"),
    }
}

/// A question that the brain drops has no answer: 404.
async fn ask<T>(
    questions: &mpsc::Sender<Question>,
    question: impl FnOnce(oneshot::Sender<T>) -> Question,
) -> Result<T, (&'static str, String)> {
    let (sender, receiver) = oneshot::channel();
    if questions.send(question(sender)).await.is_err() {
        return Err(error("503 Service Unavailable", "shutting down"));
    }
    match timeout(LIMIT, receiver).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(error("404 Not Found", "the exporter isn't connected")),
        Err(_) => Err(error("504 Gateway Timeout", "the exporter doesn't answer")),
    }
}

fn ok(body: &impl Serialize) -> (&'static str, String) {
    match serde_json::to_string(body) {
        Ok(body) => ("200 OK", body),
        Err(failure) => error("500 Internal Server Error", &failure.to_string()),
    }
}

fn error(status: &'static str, message: &str) -> (&'static str, String) {
    (status, json!({ "error": message }).to_string())
}
