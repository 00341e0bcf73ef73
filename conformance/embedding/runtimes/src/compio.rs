//! compio on io_uring: a file is written and read back.

use compio::fs::File;
use compio::io::{AsyncReadAtExt, AsyncWriteAtExt};

const TEXT: &[u8] = b"through compio";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    uringlet::init()?;
    compio::runtime::Runtime::new()?.block_on(async {
        let mut file = File::create("runtime-data").await?;
        file.write_all_at(TEXT, 0).await.0?;
        file.close().await?;
        let file = File::open("runtime-data").await?;
        let (result, read) = file.read_exact_at(vec![0; TEXT.len()], 0).await.into();
        let result: std::io::Result<()> = result;
        result?;
        assert_eq!(read, TEXT);
        println!("all well");
        Ok(())
    })
}
