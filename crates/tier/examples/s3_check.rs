//! Tries the S3 tier on any server: `s3_check plain s3://bucket/scratch`, with the usual variables.
//!
//! Runs the conformance suite below the prefix (which fills with objects), with the encryption that the
//! first word names: `plain`, `server-keys`, `key-service:ID`, `customer-key`. With `--keep NAME` it only writes
//! and reads one object. `wrong-settings` tries what people get wrong, `small-objects` tells how many
//! a second four connections bring.

#![expect(clippy::print_stdout, reason = "this program is run by scripts that read it")]

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use hayase_layout::ByteCount;
use hayase_tier::s3::{
    ConditionalWrites, CredentialSource, Credentials, Encryption, S3Settings, SettingsError,
};
use hayase_tier::{Attributes, Key, Precondition, S3, Tier, TierError, conformance};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let answer = match words.as_slice() {
        ["wrong-settings", url] => wrong_settings(url),
        ["small-objects", url] => small_objects(url),
        [mode, url] => suite(mode, url),
        [mode, url, "--keep", name] => one_object(mode, url, name),
        _ => Err("s3_check MODE s3://bucket/prefix [--keep NAME]".into()),
    };
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            if let Some(help) = error.downcast_ref::<TierError>().and_then(TierError::help) {
                println!("help: {help}");
            }
            ExitCode::FAILURE
        }
    }
}

fn settings(mode: &str, url: &str) -> Result<S3Settings, Failure> {
    let encryption = match mode.split_once(':') {
        Some(("key-service", id)) => Encryption::KeyService(Some(id.to_owned())),
        _ => match mode {
            "plain" => Encryption::BucketDefault,
            "server-keys" => Encryption::ServerKeys,
            "customer-key" => Encryption::CustomerKey([7; 32]),
            other => return Err(format!("there is no mode `{other}`").into()),
        },
    };
    let settings: Result<S3Settings, SettingsError> =
        S3Settings::from_url(url, &|name| std::env::var(name).ok());
    let part_bytes = ByteCount::mib(5);
    Ok(S3Settings { encryption, customer_key_in_clear: true, part_bytes, ..settings? })
}

fn suite(mode: &str, url: &str) -> Result<(), Failure> {
    let base = settings(mode, url)?;
    let probed = S3::attach(base.clone())?;
    println!("{}: {:?}", probed.describe(), probed.capabilities());
    let run = Instant::now().elapsed().as_nanos() ^ u128::from(std::process::id());
    let mut count = 0;
    // Once as servers use it, once as copies do, whose uploads outlive their process.
    let kept_in = std::env::temp_dir().join(format!("hayase-uploads-{run}"));
    for kept_in in [None, Some(kept_in.clone())] {
        conformance::run(|| {
            count += 1;
            let prefix = format!("{}run-{run}/{count}/", base.prefix);
            let settings = S3Settings { prefix, kept_in: kept_in.clone(), ..base.clone() };
            S3::attach(settings).expect("it was attached before")
        });
    }
    // Empty: every upload was ended.
    std::fs::remove_dir(&kept_in)?;
    Ok(())
}

/// Writes and reads one object, and shows that another key than a customer's own does not open it.
fn one_object(mode: &str, url: &str, name: &str) -> Result<(), Failure> {
    let settings = settings(mode, url)?;
    let (tier, name) = (S3::attach(settings.clone())?, Key::new(name)?);
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    tier.put(&name, Attributes::default(), &bytes, Precondition::Any)?;
    let mut seen = vec![0; bytes.len()];
    let count = tier.open(&name)?.read_at(0, &mut seen)?;
    if seen[..count] != bytes {
        return Err("other bytes came back".into());
    }
    if matches!(settings.encryption, Encryption::CustomerKey(_)) {
        for encryption in [Encryption::CustomerKey([8; 32]), Encryption::BucketDefault] {
            let conditional = ConditionalWrites::Off;
            let other = S3Settings { encryption, conditional, ..settings.clone() };
            match S3::attach(other)?.open(&name) {
                Ok(_) => return Err("it was opened without its key".into()),
                Err(error) => println!("without its key: {error}"),
            }
        }
    }
    Ok(())
}

/// Each thing that people get wrong is told apart, and says what to do.
fn wrong_settings(url: &str) -> Result<(), Failure> {
    let good = settings("plain", url)?;
    let CredentialSource::Found(found) = &good.credentials else { unreachable!("from_url finds") };
    let keys = found.keys.clone().ok_or("AWS_ACCESS_KEY_ID is not set")?;
    let with = |keys| S3Settings { credentials: CredentialSource::Keys(keys), ..good.clone() };
    let unknown = Credentials { access_key: "NOBODY".into(), ..keys.clone() };
    let secret = Credentials { secret_key: "wrong".into(), ..keys.clone() };
    let elsewhere = Some("http://127.0.0.1:9".to_owned());
    for (settings, expected) in [
        (with(unknown), "does not know the access key `NOBODY`"),
        (with(secret), "the secret of the access key"),
        (S3Settings { bucket: "no-such-bucket".into(), ..good.clone() }, "no bucket"),
        (S3Settings { endpoint: elsewhere, ..good.clone() }, "no S3 server answers"),
    ] {
        match S3::attach(settings) {
            Err(error @ TierError::Refused { .. }) if error.to_string().contains(expected) => {
                println!("{error}\n  {}", error.help().unwrap_or(""));
            }
            other => return Err(format!("expected `{expected}`, not {other:?}").into()),
        }
    }
    Ok(())
}

const SMALL: usize = 16 * 1024;
const OBJECTS: usize = 400;
const CONNECTIONS: usize = 4;

fn small_objects(url: &str) -> Result<(), Failure> {
    let base = settings("plain", url)?;
    let name = |n: usize| Key::new(format!("o{n}")).expect("a plain name");
    let tier = S3::attach(base.clone())?;
    for n in 0..OBJECTS {
        tier.put(
            &name(n),
            Attributes::default(),
            &vec![n.to_le_bytes()[0]; SMALL],
            Precondition::Any,
        )?;
    }
    for acknowledge_at_once in [false, true] {
        let tier = S3::attach(S3Settings { acknowledge_at_once, ..base.clone() })?;
        let started = Instant::now();
        let lane = |lane: usize| -> Result<(), TierError> {
            for n in (lane..OBJECTS).step_by(CONNECTIONS) {
                let mut bytes = vec![0; SMALL];
                tier.open(&name(n))?.read_at(0, &mut bytes)?;
                assert!(bytes.iter().all(|&byte| byte == n.to_le_bytes()[0]), "object {n} differs");
            }
            Ok(())
        };
        thread::scope(|scope| {
            let lanes: Vec<_> = (0..CONNECTIONS).map(|n| scope.spawn(move || lane(n))).collect();
            lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane"))
        })?;
        let rate = OBJECTS as f64 / started.elapsed().as_secs_f64();
        println!("small objects, acknowledged at once: {acknowledge_at_once}: {rate:.0}/s");
    }
    Ok(())
}
