//! A store's address, and how to connect to it.

use crate::http2::{KEEP_ALIVE, WINDOW};
use crate::store::BlockStore;
use anyhow::{Context, bail};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::future::ready;
use std::io::{Error, ErrorKind};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};

/// Buffer of a connection to a store in the same process, bytes.
const PIPE_BYTES: usize = 512 * 1024;

/// What a client does to a store that another client uses. A store serves one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreClaim {
    /// It leaves the store to the other one.
    IfUnused,
    /// It replaces the other one, whose server has died, if the volume's name has this hash
    /// (`uringlet_ublk_server::volume::name_hash`); 0: whatever the volume is.
    TakeOver(u64),
}

/// A store's address.
#[derive(Clone, Debug)]
pub struct StoreEndpoint {
    endpoint: Endpoint,
    /// Connects to a store in this process.
    embedded: Option<mpsc::UnboundedSender<DuplexStream>>,
    name: String,
}

impl StoreEndpoint {
    /// `HOST:PORT`, `http://HOST:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// The text has none of these forms.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        if text.starts_with("https:") {
            bail!("`{text}`: TLS is not supported; use http:// and a tunnel");
        }
        let path = text.strip_prefix("unix:");
        let uri = if path.is_some() || text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let what = || format!("`{text}` is not the address of a store: use HOST:PORT or unix:PATH");
        let endpoint = Endpoint::from_shared(uri).with_context(what)?;
        let uri = endpoint.uri();
        let has_port = uri.port_u16().is_some() && uri.host().is_some_and(|host| !host.is_empty());
        let is_complete = path.map_or(has_port, |path| !path.is_empty());
        if is_complete { Ok(Self { endpoint: configured(endpoint), embedded: None, name: text.to_owned() }) } else { bail!(what()) }
    }

    /// A store in this process, served while its endpoint exists. Call it inside a runtime.
    #[must_use]
    pub fn embedded(store: BlockStore) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let connections = UnboundedReceiverStream::new(receiver).map(Ok::<DuplexStream, Error>);
        tokio::spawn(async move { store.serve(connections).await });
        let endpoint = configured(Endpoint::from_static("http://embedded"));
        Self { endpoint, embedded: Some(sender), name: "the store in this process".to_owned() }
    }

    pub(crate) async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        let Some(connections) = self.embedded.clone() else { return self.endpoint.connect().await };
        let connector = tower::service_fn(move |_| {
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            let sent = connections.send(theirs).map_err(|_| Error::from(ErrorKind::ConnectionRefused));
            ready(sent.map(|()| TokioIo::new(ours)))
        });
        self.endpoint.connect_with_connector(connector).await
    }
}

impl fmt::Display for StoreEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

fn configured(endpoint: Endpoint) -> Endpoint {
    endpoint
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(16 * WINDOW)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_while_idle(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_need_a_port_or_a_path() {
        for good in ["localhost:7", "127.0.0.1:80", "[::1]:80", "http://store:9", "unix:/run/store", "unix:store"] {
            assert_eq!(StoreEndpoint::parse(good).unwrap().to_string(), good);
        }
        for bad in ["", "localhost", "http://localhost", "https://localhost:1", "unix:", "a b:7", ":7"] {
            assert!(StoreEndpoint::parse(bad).is_err(), "{bad}");
        }
    }
}
