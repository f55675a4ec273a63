//! Other tools that copy from and to a bucket, each at settings that suit it: rclone, aws (AWS CLI), s3cmd, s5cmd, and
//! s3fs (a mount, into and out of which eight `cp` work).

use std::fs;
use std::process::Command;

use super::ground::Ground;
use super::program;

/// In the bucket, and on the way back.
const PLACE: &str = "peer";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Hayase,
    Rclone,
    Aws,
    S3cmd,
    S5cmd,
    S3fs,
}

pub(super) const TOOLS: [Tool; 6] =
    [Tool::Hayase, Tool::Rclone, Tool::Aws, Tool::S3cmd, Tool::S5cmd, Tool::S3fs];

impl Tool {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hayase => "hayase",
            Self::Rclone => "rclone",
            Self::Aws => "aws",
            Self::S3cmd => "s3cmd",
            Self::S5cmd => "s5cmd",
            Self::S3fs => "s3fs",
        }
    }

    pub(super) fn is_here(self) -> bool {
        let word = match self {
            Self::Hayase => return true,
            Self::Rclone | Self::S5cmd => "version",
            Self::Aws | Self::S3cmd | Self::S3fs => "--version",
        };
        program::answers(self.name(), word)
    }

    /// May be told how many transfers there should be at a time.
    pub(super) const fn is_parallel(self) -> bool {
        !matches!(self, Self::S3cmd | Self::S3fs)
    }

    /// Copies `tree` up, or the bucket's copy down to `in`, with so many transfers at a time.
    pub(super) fn command(
        self,
        ground: &Ground<'_>,
        what: &str,
        transfers: usize,
    ) -> anyhow::Result<Command> {
        let is_up = what == "up";
        let url = ground.url(PLACE);
        let mut command = Command::new(self.name());
        ground.tell(&mut command);
        command.current_dir(ground.path(""));
        match self {
            Self::Hayase if is_up => {
                return Ok(ground.hayase(&["stage", "out", "tree", &url, "--pack", "none"]));
            }
            Self::Hayase => return Ok(ground.hayase(&["stage", "in", &url, "in"])),
            Self::Rclone => {
                let place = format!("s3:{PLACE}");
                let ends = if is_up { ["tree", &place] } else { [&place, "in"] };
                let mut command = ground.rclone(ends[0], ends[1])?;
                let number = transfers.to_string();
                command.args(["--transfers", &number, "--checkers", &number]);
                return Ok(command);
            }
            Self::Aws => {
                let ends = if is_up { ["tree", &url] } else { [&url, "in"] };
                command.args(["--endpoint-url", &ground.endpoint(), "s3", "cp", "--recursive"]);
                command.arg("--only-show-errors").args(ends);
                let config = ground.path("aws");
                let told = format!("[default]\ns3 =\n  max_concurrent_requests = {transfers}\n");
                fs::write(&config, told + "  multipart_chunksize = 16MB\n")?;
                command.env("AWS_CONFIG_FILE", config);
            }
            Self::S3cmd => {
                let [key, secret] = ground.keys();
                let endpoint = ground.endpoint();
                let host = endpoint.trim_start_matches("http://");
                command.args(["-c", "/dev/null", "-q", "--no-ssl", "--no-check-md5"]);
                command.arg("--region=us-east-1");
                command.args([format!("--access_key={key}"), format!("--secret_key={secret}")]);
                command.args([format!("--host={host}"), format!("--host-bucket={host}")]);
                let url = format!("{url}/");
                // It wants one that is there.
                fs::create_dir_all(ground.path("in"))?;
                match is_up {
                    true => command.args(["put", "-r", "tree/", &url]),
                    false => command.args(["get", "-r", &url, "in/"]),
                };
            }
            Self::S5cmd => {
                command.env("S3_ENDPOINT_URL", ground.endpoint()).args(["--log", "error"]);
                command.args(["--numworkers", &transfers.to_string(), "cp"]);
                match is_up {
                    true => command.args(["tree/", &format!("{url}/")]),
                    false => command.args([&format!("{url}/*"), "in/"]),
                };
            }
            Self::S3fs => {
                let ends = if is_up { "tree mount/peer" } else { "mount/peer in" };
                let script = format!(
                    "set -- {ends} && mkdir -p $2 && to=$PWD/$2 && cd $1 && \
                     find . -type d -exec mkdir -p $to/{{}} \\; && \
                     find . -type f -print0 | xargs -0 -n 8 -P 8 cp --parents -t $to"
                );
                command = Command::new("sh");
                command.args(["-c", &script]).current_dir(ground.path(""));
            }
        }
        Ok(command)
    }
}
