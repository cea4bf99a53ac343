//! Makes the file from which `omniglot::embedded` reads, from the official zip files.
//!
//!     cargo run --release -p bilevel-data --example embed_omniglot -- DIR OUT

use bilevel_data::datasets::omniglot;
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [data, out] = &words[..] else {
        return Err("give DIR, the folder of omniglot/, and OUT, the file to write".into());
    };
    let cache = tempfile::tempdir()?;
    let (background, evaluation) = omniglot::load(data, omniglot::SIDE, cache.path())?;
    let packed = omniglot::pack(&background, &evaluation)?;
    let mut writer = lzma_rust2::XzWriter::new(vec![], lzma_rust2::XzOptions::with_preset(9))?;
    writer.write_all(&packed)?;
    let compressed = writer.finish()?;
    std::fs::write(out, &compressed)?;
    println!("{} bytes from {}, with the SHA-256 {}", compressed.len(), packed.len(), bilevel_data::sha256(&packed));
    Ok(())
}
