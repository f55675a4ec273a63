//! What travels between processes.

pub mod message;
