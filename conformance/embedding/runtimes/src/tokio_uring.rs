//! tokio-uring: a file is written and read back, and two sockets talk.

use tokio_uring::buf::BoundedBuf;
use tokio_uring::fs::File;
use tokio_uring::net::{TcpListener, TcpStream};

const TEXT: &[u8] = b"through tokio-uring";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    uringlet::init()?;
    tokio_uring::start(async {
        files().await?;
        sockets().await?;
        println!("all well");
        Ok(())
    })
}

async fn files() -> std::io::Result<()> {
    let file = File::create("runtime-data").await?;
    let (result, _) = file.write_at(TEXT, 0).submit().await;
    assert_eq!(result?, TEXT.len());
    file.close().await?;
    let file = File::open("runtime-data").await?;
    let (result, read) = file.read_at(vec![0; 64], 0).await;
    assert_eq!(&read[..result?], TEXT);
    file.close().await
}

async fn sockets() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0".parse().expect("an address"))?;
    let address = listener.local_addr()?;
    let client = tokio_uring::spawn(async move {
        let stream = TcpStream::connect(address).await?;
        stream.write_all(TEXT).await.0
    });
    let (stream, _) = listener.accept().await?;
    let mut got = Vec::new();
    while got.len() < TEXT.len() {
        let (result, read) = stream.read(vec![0; 64]).await;
        got.extend_from_slice(&read.slice(..result?));
    }
    client.await.expect("the client")?;
    assert_eq!(got, TEXT);
    Ok(())
}
