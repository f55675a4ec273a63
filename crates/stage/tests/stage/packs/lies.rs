//! Sets that somebody made to harm: right checksums, wrong contents.

use hayase_stage::pack::{Compression, PackSet};
use hayase_tier::Key;
use ring::digest::{SHA256, digest};

use super::{check, file, memory, objects, put, write};

/// A set of one pack with the file `a` of three bytes; its index replaced by `lines`, in which `ID` and
/// `SIZE` stand for the pack. Answers why it does not open, or the set.
fn with_index(lines: &[&str]) -> Result<PackSet, String> {
    let place = memory();
    let set = write(&place, None, &[vec![file("a", b"abc")]], Compression::None);
    let line = set.index.packs[0];
    let mut text = String::from("hayase-index 1\n");
    for line_text in lines {
        let line_text = line_text
            .replace("ID", &line.id.to_string())
            .replace("SIZE", &line.bytes.to_string())
            .replace("SUM", &format!("{:08x}", line.crc32c));
        text.push_str(&(line_text + "\n"));
    }
    let sum = digest(&SHA256, text.as_bytes());
    let sum: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let rows = lines.iter().filter(|line| !line.starts_with("p ")).count();
    text.push_str(&format!("e {rows} {sum}\n"));
    let key = Key::new(".hayase-packs/index-0000000000000001.txt").unwrap();
    put(&*place.tier, &key, text.as_bytes());
    PackSet::open(&place, None).map_err(|error| error.to_string())
}

const PACK: &str = "p ID SIZE SUM";

fn row(name: &str) -> String {
    // crc32c of "abc"
    format!("f 0 512 3 3 364b3fb7 raw 0640 1700000000.000000005 {name}")
}

#[test]
fn the_true_index_opens() {
    let set = with_index(&[PACK, &row("a")]).unwrap();
    assert!(check(&set).damage.is_empty(), "{:?}", check(&set).damage);
}

#[test]
fn names_that_lead_out_are_refused() {
    for name in ["../a", "/etc/passwd", "a/../../b", "%2E%2E/a", "a/%2e%2e", "a%00b", ".", "a//b"] {
        assert!(with_index(&[PACK, &row(name)]).is_err(), "{name}");
    }
}

#[test]
fn names_twice_and_devices_are_refused() {
    assert!(with_index(&[PACK, &row("a"), &row("a")]).unwrap_err().contains("twice"));
    let device = row("a").replace("f 0", "b 0");
    assert!(with_index(&[PACK, &device]).unwrap_err().contains("kind"));
}

#[test]
fn huge_lengths_are_refused_or_end_in_damage() {
    let huge = "f 0 512 18446744073709551615 18446744073709551615 00000000 raw 0644 0.000000000 a";
    assert!(with_index(&[PACK, huge]).is_err());
    // The pack's line lies as well: found at the pack, without taking memory for what is not there.
    let big = "f 0 512 1000000000000 1000000000000 00000000 raw 0644 0.000000000 a";
    let set = with_index(&["p ID 1000000002048 SUM", big]).unwrap();
    let told = set.pack(0).unwrap().entry(&set.index.rows[0]).unwrap_err().to_string();
    assert!(told.contains("ends too early"), "{told}");
    assert!(!check(&set).damage.is_empty());
    // A bomb: three bytes that claim to unpack to more than any compressed entry may.
    let bomb = "f 0 512 3 99999999999 00000000 zstd 0644 0.000000000 a";
    assert!(with_index(&[PACK, bomb]).unwrap_err().contains("larger"));
}

#[test]
fn an_index_that_renames_is_found_by_the_tar_header() {
    let set = with_index(&[PACK, &row("b")]).unwrap();
    let damage = check(&set).damage;
    assert!(damage.iter().any(|error| error.to_string().contains("tar header")), "{damage:?}");
}

#[test]
fn a_tar_that_says_something_else_is_found() {
    let place = memory();
    let set = write(&place, None, &[vec![file("a", b"abc")]], Compression::None);
    let packs =
        objects(&*place.tier).into_iter().find(|(key, _)| key.to_string().contains("pack-"));
    let (key, mut bytes) = packs.unwrap();
    // A valid header of another name: what `tar x` would write elsewhere.
    let header = &mut bytes[..512];
    header[..6].copy_from_slice(b"../bad");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    put(&*place.tier, &key, &bytes);
    let damage = check(&set).damage;
    assert!(damage.iter().any(|error| error.to_string().contains("tar header")), "{damage:?}");
}
