//! glommio: a buffered file is written and read back.

use glommio::LocalExecutorBuilder;
use glommio::io::BufferedFile;

const TEXT: &[u8] = b"through glommio";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    uringlet::init()?;
    let executor = LocalExecutorBuilder::default().make()?;
    executor.run(async {
        let file = BufferedFile::create("runtime-data").await.expect("create");
        assert_eq!(file.write_at(TEXT.to_vec(), 0).await.expect("write"), TEXT.len());
        file.close().await.expect("close");
        let file = BufferedFile::open("runtime-data").await.expect("open");
        let read = file.read_at(0, TEXT.len()).await.expect("read");
        assert_eq!(&*read, TEXT);
        file.close().await.expect("close");
        println!("all well");
    });
    Ok(())
}
