//! monoio, its io_uring driver alone: a file is written and read back, and two sockets talk.

use monoio::fs::File;
use monoio::io::{AsyncReadRentExt, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};

const TEXT: &[u8] = b"through monoio";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    uringlet::init()?;
    let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().build()?;
    runtime.block_on(async {
        files().await?;
        sockets().await?;
        println!("all well");
        Ok(())
    })
}

async fn files() -> std::io::Result<()> {
    let file = File::create("runtime-data").await?;
    file.write_all_at(TEXT, 0).await.0?;
    file.close().await?;
    let file = File::open("runtime-data").await?;
    let (result, read) = file.read_exact_at(vec![0; TEXT.len()], 0).await;
    result?;
    assert_eq!(read, TEXT);
    file.close().await
}

async fn sockets() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let client = monoio::spawn(async move {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(TEXT).await.0
    });
    let (mut stream, _) = listener.accept().await?;
    let (result, read) = stream.read_exact(vec![0; TEXT.len()]).await;
    result?;
    client.await?;
    assert_eq!(read, TEXT);
    Ok(())
}
