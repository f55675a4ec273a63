//! The daemon of one node: names, bytes, opens.
mod home;
