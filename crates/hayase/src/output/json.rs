//! Results and errors for programs.

use serde::Serialize;
use serde_json::json;

use crate::advice::Advice;
use crate::exit::Status;

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

/// The same of arguments that were not understood: the first line of `text`, and the others as help.
pub(crate) fn wrong_usage(text: &str) -> String {
    let (message, rest) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let help: Vec<_> = rest.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let exit = Status::Usage.code();
    let error = json!({ "message": message, "causes": [], "help": help.join("; "), "exit": exit });
    json!({ "error": error }).to_string()
}

/// `{"error": {"message", "causes", "help", "exit"}}` in one line.
pub(crate) fn failure(error: &anyhow::Error, advice: &Advice) -> String {
    let causes: Vec<_> = error.chain().skip(1).map(ToString::to_string).collect();
    let error = json!({
        "message": error.to_string(),
        "causes": causes,
        "help": advice.help,
        "exit": advice.status().code(),
    });
    json!({ "error": error }).to_string()
}
