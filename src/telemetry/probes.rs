//! `/healthz` and `/readyz` for the kubelet. Both say yes as long as the process can answer, also
//! while another replica leads: a rollout that starts the new Pod before it stops the old one would
//! else wait for ever.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::debug;

/// A client that does not say what it wants by then is sent away.
const HEADER_LIMIT: Duration = Duration::from_secs(5);
/// A whole exchange takes no longer.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(10);
/// Clients at a time.
const CLIENTS: usize = 32;

/// Where to listen, in Go's form: `:8081`, `host:8081`, `[::1]:8081`; `0` or nothing for nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// Nowhere.
    Off,
    /// This port on all addresses, IPv4 and IPv6.
    AnyAddress(u16),
    /// `host:port`.
    Host(String),
}

impl FromStr for BindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if matches!(text, "" | "0") {
            return Ok(Self::Off);
        }
        let parts = text.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        match parts {
            Some(("", port)) => Ok(Self::AnyAddress(port)),
            Some((host, _)) if !host.contains(':') || host.starts_with('[') => {
                Ok(Self::Host(text.to_owned()))
            }
            _ => Err("write :PORT, HOST:PORT, [IPV6]:PORT, or 0 for off".to_owned()),
        }
    }
}

/// Why the probes can't be served.
#[derive(Debug, Error)]
#[error(
    "can't listen on {address} for probes: {source}; choose another --health-probe-bind-address"
)]
pub struct ProbesError {
    address: String,
    source: io::Error,
}

/// Running probes; they end when this is dropped.
pub struct Probes {
    task: JoinHandle<()>,
    address: SocketAddr,
}

impl Probes {
    /// Listens on `address`; `None` if it is off.
    ///
    /// # Errors
    /// If the address can't be had.
    pub async fn start(address: &BindAddress) -> Result<Option<Self>, ProbesError> {
        let listener = match address {
            BindAddress::Off => return Ok(None),
            BindAddress::AnyAddress(port) => match TcpListener::bind(("::", *port)).await {
                Ok(listener) => Ok(listener),
                // A machine without IPv6.
                Err(_) => TcpListener::bind(("0.0.0.0", *port)).await,
            },
            BindAddress::Host(address) => TcpListener::bind(address).await,
        };
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.map_err(|source| ProbesError {
            address: match address {
                BindAddress::Off => String::new(),
                BindAddress::AnyAddress(port) => format!(":{port}"),
                BindAddress::Host(address) => address.clone(),
            },
            source,
        })?;
        let task = tokio::spawn(accept(listener));
        Ok(Some(Self { task, address }))
    }

    /// Where they listen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener) {
    let clients = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok(permit) = Arc::clone(&clients).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(async move {
                    serve(stream).await;
                    drop(permit);
                });
            }
            // No file descriptors left, mostly.
            Err(error) => {
                debug!("probes: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    match timeout(EXCHANGE_LIMIT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!("probes: {error}"),
        Err(_) => debug!("probes: a client was too slow"),
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = route(request.method(), request.uri().path());
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    Ok(response)
}

/// As controller-runtime does, a single check (`/readyz/ping`) can be asked for, too.
fn route(method: &Method, path: &str) -> (StatusCode, &'static str) {
    let path = path.trim_end_matches('/');
    if !matches!(
        path,
        "/healthz" | "/healthz/ping" | "/readyz" | "/readyz/ping"
    ) {
        return (StatusCode::NOT_FOUND, "not found");
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        return (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
    }
    (StatusCode::OK, "ok")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn addresses_are_read_as_go_writes_them() {
        let host = |text: &str| Ok(BindAddress::Host(text.to_owned()));
        assert_eq!("0".parse(), Ok(BindAddress::Off));
        assert_eq!("".parse(), Ok(BindAddress::Off));
        assert_eq!(":8081".parse(), Ok(BindAddress::AnyAddress(8081)));
        assert_eq!("127.0.0.1:8081".parse(), host("127.0.0.1:8081"));
        assert_eq!("[::1]:8081".parse(), host("[::1]:8081"));
        for wrong in ["8081", "::1:8081", "host:", ":99999", ":http"] {
            assert!(wrong.parse::<BindAddress>().is_err(), "{wrong}");
        }
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_kubelet_gets_its_answers() {
        let address = "127.0.0.1:0".parse().unwrap();
        let probes = Probes::start(&address).await.unwrap().unwrap();
        let cases = [
            ("GET /healthz", "200", "ok"),
            ("GET /readyz", "200", "ok"),
            ("GET /readyz/ping?verbose", "200", "ok"),
            ("GET /metrics", "404", "not found"),
            ("POST /healthz", "405", "only GET and HEAD"),
        ];
        for (asked, status, body) in cases {
            let request = format!("{asked} HTTP/1.1\r\nHost: probe\r\nContent-Length: 0\r\n\r\n");
            let answer = ask(probes.address(), &request).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{asked}: {answer}"
            );
            assert!(answer.ends_with(body), "{asked}: {answer}");
        }
        let taken = BindAddress::Host(probes.address().to_string());
        let error = Probes::start(&taken).await.err().unwrap().to_string();
        assert!(error.contains(&probes.address().to_string()), "{error}");
    }
}
