//! The server as a program: `hayase-s3-server --listen 127.0.0.1:9000 --bucket data`.

use std::io::Write;
use std::net::SocketAddr;

use clap::Parser;
use hayase_s3_server::{ACCESS_KEY, Options, SECRET_KEY, Server};

/// Serve S3 from memory until ended (SIGINT, SIGTERM); nothing is kept
#[derive(Debug, Parser)]
struct Args {
    /// Where to listen; the line `endpoint http://ADDR` tells which port was chosen
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Bucket to make; may be given again
    #[arg(long = "bucket", default_value = "bucket")]
    buckets: Vec<String>,
    /// Threads that serve
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Access key
    #[arg(long, default_value = ACCESS_KEY)]
    access_key: String,
    /// Its secret
    #[arg(long, default_value = SECRET_KEY)]
    secret_key: String,
}

fn main() -> anyhow::Result<()> {
    let Args { listen, buckets, threads, access_key, secret_key } = Args::parse();
    let keys = Some((access_key, secret_key));
    let server = Server::start(&Options { listen, keys, buckets, domain: None, threads })?;
    writeln!(std::io::stdout(), "endpoint {}", server.endpoint())?;
    loop {
        std::thread::park();
    }
}
