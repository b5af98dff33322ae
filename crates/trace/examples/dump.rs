// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the events of a recording, one a line: `cargo run -p trace --example dump FILE`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: dump FILE")?;
    let reader = trace::Reader::new(std::fs::File::open(path)?)?;
    println!("{:#?}", reader.info());
    for event in reader {
        let event = event?;
        println!("{} cpu {} task {} {:?}", event.at_ns, event.cpu, event.tid, event.what);
    }
    Ok(())
}
