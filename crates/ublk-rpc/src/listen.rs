//! A store's listening socket.

use crate::store::BlockStore;
use anyhow::{Context, bail};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::TcpIncoming;

/// A listening socket. Dropping it removes a unix socket's file.
#[derive(Debug)]
pub struct StoreListener {
    incoming: Incoming,
    name: ListenName,
}

#[derive(Debug)]
enum Incoming {
    Tcp(TcpIncoming),
    Unix(UnixListenerStream),
}

#[derive(Debug)]
enum ListenName {
    Tcp(SocketAddr),
    Unix(UnlinkOnDrop),
}

#[derive(Debug)]
struct UnlinkOnDrop(PathBuf);

impl Drop for UnlinkOnDrop {
    fn drop(&mut self) {
        // An error means that it is gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl StoreListener {
    /// Listens on `HOST:PORT` (port 0: any) or `unix:PATH`, which only this user may connect to.
    /// Call it inside a runtime.
    ///
    /// # Errors
    /// The text has neither form; the address is in use; those of bind(2).
    pub fn bind(text: &str) -> anyhow::Result<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return bind_unix(Path::new(path)).with_context(|| format!("listening on {text}"));
        }
        let mut addresses = text.to_socket_addrs().with_context(|| format!("`{text}` is not an address: use HOST:PORT or unix:PATH"))?;
        let address = addresses.next().with_context(|| format!("`{text}` resolves to no address"))?;
        let incoming = TcpIncoming::bind(address).with_context(|| format!("listening on {address}"))?.with_nodelay(Some(true));
        let name = ListenName::Tcp(incoming.local_addr()?);
        Ok(Self { incoming: Incoming::Tcp(incoming), name })
    }

    /// The address for clients.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.name {
            ListenName::Tcp(address) => address.to_string(),
            ListenName::Unix(path) => format!("unix:{}", path.0.display()),
        }
    }

    /// Whether only this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match &self.name {
            ListenName::Tcp(address) => address.ip().is_loopback(),
            ListenName::Unix(_) => true,
        }
    }

    /// Serves without end.
    ///
    /// # Errors
    /// None that a single connection can cause.
    pub async fn serve(self, store: &BlockStore) -> anyhow::Result<()> {
        match self.incoming {
            Incoming::Tcp(incoming) => store.serve(incoming).await?,
            Incoming::Unix(incoming) => store.serve(incoming).await?,
        }
        Ok(())
    }
}

fn bind_unix(path: &Path) -> anyhow::Result<StoreListener> {
    if UnixStream::connect(path).is_ok() {
        bail!("another store listens there");
    }
    // A socket here is stale, as nothing accepts on it. Any other file stays, and bind(2) fails.
    if std::fs::symlink_metadata(path).is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())) {
        let _ = std::fs::remove_file(path);
    }
    let listener = UnixListener::bind(path)?;
    let name = ListenName::Unix(UnlinkOnDrop(path.to_owned()));
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    Ok(StoreListener { incoming: Incoming::Unix(UnixListenerStream::new(listener)), name })
}
