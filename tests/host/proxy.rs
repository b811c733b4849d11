//! A TCP proxy whose connections can be cut.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Proxy {
    pub port: u16,
    cuts: watch::Sender<u32>,
}

impl Proxy {
    pub async fn to(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let (cuts, watched) = watch::channel(0);
        let address = address.to_owned();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (address, mut cut) = (address.clone(), watched.clone());
                cut.mark_unchanged();
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(address).await.expect("host");
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { port, cuts }
    }

    /// Cuts every connection that stands; new ones may be made.
    pub fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }
}
