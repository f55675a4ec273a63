//! The key of a sealed set: from a file, a variable of the environment, or what a command prints.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hayase_stage::pack::{MasterKey, PackError};

use crate::advice::{Advice, Advise};

/// More than any key has; what is longer is no key.
const KEY_BYTES_MAX: u64 = 4096;

/// A key that can not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// The file can not be read.
    #[error("read the key file {}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// There is no such variable.
    #[error("the environment variable {name} with the key is not set")]
    Variable { name: String },
    /// The command can not be run, or said that it failed.
    #[error("the key command `{command}` {how}")]
    Command { command: String, how: String },
    /// A key, or compression, where there will be no packs.
    #[error("only packs can be sealed or compressed, and this copy does not create packs")]
    NeedsPacks,
    /// What came is no key.
    #[error("{0}")]
    Format(PackError),
}

impl KeyError {
    /// What the person can try next.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::Format(error) => error.help().map(str::to_owned),
            Self::NeedsPacks => Some("add --pack 16MiB".to_owned()),
            Self::File { .. } => {
                Some("check the name of the file, and whether you may read it".to_owned())
            }
            Self::Variable { name } => Some(format!("export {name}, in this shell")),
            Self::Command { .. } => {
                Some("run it in a shell: it has to print the key, and end with 0".to_owned())
            }
        }
    }
}

impl Advise for KeyError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(self.help()))
    }
}

/// Where a key comes from; one at most.
#[derive(Debug, clap::Args)]
#[group(id = "key", multiple = false)]
pub(crate) struct KeyArgs {
    /// File with the key of sealed packs: 64 hexadecimal digits or 32 bytes
    #[arg(long, value_name = "FILE", group = "key")]
    key_file: Option<PathBuf>,
    /// Environment variable with the key
    #[arg(long, value_name = "NAME", group = "key")]
    key_env: Option<String>,
    /// Shell command that prints the key
    #[arg(long, value_name = "COMMAND", group = "key")]
    key_command: Option<String>,
}

impl KeyArgs {
    /// `None` when no key was named.
    pub(crate) fn key(&self) -> Result<Option<MasterKey>, KeyError> {
        self.given()?.map(|given| parse(&given)).transpose()
    }

    /// A key was named.
    pub(crate) fn is_given(&self) -> bool {
        self.key_file.is_some() || self.key_env.is_some() || self.key_command.is_some()
    }

    /// The text of the key, for a process that has to be told; `None` when no key was named.
    pub(crate) fn given(&self) -> Result<Option<Vec<u8>>, KeyError> {
        given(self.key_file.as_deref(), self.key_env.as_deref(), self.key_command.as_deref())
    }
}

/// Where the next key comes from.
#[derive(Debug, clap::Args)]
#[group(id = "new-key", multiple = false, required = true)]
pub(crate) struct NewKeyArgs {
    /// File with the new key
    #[arg(long, value_name = "FILE", group = "new-key")]
    new_key_file: Option<PathBuf>,
    /// Environment variable with the new key
    #[arg(long, value_name = "NAME", group = "new-key")]
    new_key_env: Option<String>,
    /// Shell command that prints the new key
    #[arg(long, value_name = "COMMAND", group = "new-key")]
    new_key_command: Option<String>,
}

impl NewKeyArgs {
    pub(crate) fn key(&self) -> Result<Option<MasterKey>, KeyError> {
        let (file, variable) = (self.new_key_file.as_deref(), self.new_key_env.as_deref());
        let given = given(file, variable, self.new_key_command.as_deref())?;
        given.map(|given| parse(&given)).transpose()
    }
}

/// Where the key of what `run --out` packs comes from: it need not be that of the input.
#[derive(Debug, clap::Args)]
#[group(id = "out-key", multiple = false)]
pub(crate) struct OutKeyArgs {
    /// File with the key to seal the packs with
    #[arg(long, value_name = "FILE", group = "out-key")]
    out_key_file: Option<PathBuf>,
    /// Environment variable with that key
    #[arg(long, value_name = "NAME", group = "out-key")]
    out_key_env: Option<String>,
    /// Shell command that prints that key
    #[arg(long, value_name = "COMMAND", group = "out-key")]
    out_key_command: Option<String>,
}

impl OutKeyArgs {
    /// The options, for messages about them.
    pub(crate) const NAMES: &str = "--out-key-file, --out-key-env or --out-key-command";

    /// A key was named.
    pub(crate) fn is_given(&self) -> bool {
        self.out_key_file.is_some() || self.out_key_env.is_some() || self.out_key_command.is_some()
    }

    /// The text of the key, which is one, for a worker that has to be told; `None` when no key was named.
    pub(crate) fn given(&self) -> Result<Option<Vec<u8>>, KeyError> {
        let (file, variable) = (self.out_key_file.as_deref(), self.out_key_env.as_deref());
        let given = given(file, variable, self.out_key_command.as_deref())?;
        given.map(|given| parse(&given).map(|_| given)).transpose()
    }
}

fn given(
    file: Option<&Path>,
    variable: Option<&str>,
    command: Option<&str>,
) -> Result<Option<Vec<u8>>, KeyError> {
    Ok(Some(match (file, variable, command) {
        (Some(path), _, _) => read(path)?,
        // Named by an argument, so it is read here and not with the rest of the environment.
        (_, Some(name), _) => std::env::var_os(name)
            .map(OsString::into_encoded_bytes)
            .ok_or_else(|| KeyError::Variable { name: name.to_owned() })?,
        (_, _, Some(command)) => printed_by(command)?,
        (None, None, None) => return Ok(None),
    }))
}

fn parse(given: &[u8]) -> Result<MasterKey, KeyError> {
    MasterKey::parse(given).map_err(KeyError::Format)
}

/// What [`KeyArgs::given`] answered in the process that started this one, from its standard input.
pub(crate) fn told() -> Result<MasterKey, KeyError> {
    let mut given = Vec::new();
    let failed = |source| KeyError::File { path: "standard input".into(), source };
    std::io::stdin().take(KEY_BYTES_MAX).read_to_end(&mut given).map_err(failed)?;
    parse(&given)
}

fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(KEY_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn printed_by(command: &str) -> Result<Vec<u8>, KeyError> {
    let failed = |how: String| KeyError::Command { command: command.to_owned(), how };
    // It may ask the person: standard input and error are theirs.
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::inherit()).stderr(Stdio::inherit());
    let output = shell.output().map_err(|error| failed(format!("can not be run: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!("failed: {}", output.status)));
    }
    Ok(output.stdout)
}
