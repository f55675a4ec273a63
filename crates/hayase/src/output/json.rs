//! Results and errors for programs.

use serde::Serialize;
use serde_json::json;

use crate::exit::{advice, status_of};

/// A result, indented.
pub(crate) fn document<T: Serialize>(value: &T) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A value in one line.
pub(crate) fn line<T: Serialize>(value: &T) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// `{"error": {"message", "causes", "help", "exit"}}` in one line.
pub(crate) fn failure(error: &anyhow::Error) -> String {
    let causes: Vec<_> = error.chain().skip(1).map(ToString::to_string).collect();
    let error = json!({
        "message": error.to_string(),
        "causes": causes,
        "help": advice(error).help,
        "exit": status_of(error).code(),
    });
    json!({ "error": error }).to_string()
}
