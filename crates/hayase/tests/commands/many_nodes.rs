//! What concerns several nodes without starting them: who could reach their servers, whose storage they use.

use std::process::Command;

use serde_json::Value;

use crate::support::{Scene, done};

fn exposed(told: &str) -> (Value, Value) {
    let told: Value = serde_json::from_str(told).unwrap_or_else(|error| panic!("{error}: {told}"));
    let checks = told["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "exposed addresses").unwrap();
    (check.clone(), told["listening"].clone())
}

#[test]
fn doctor_tells_where_servers_would_listen() {
    let scene = Scene::new();
    // Whatever else this machine lacks, the answer is there.
    let (check, listening) =
        exposed(&scene.hayase(&["doctor", "--json", "--hosts", "localhost"]).stdout);
    assert_eq!(check["health"], "ok", "{check}");
    assert_eq!(listening, serde_json::json!([]));
    let (check, _) = exposed(&scene.hayase(&["doctor", "--json", "--hosts", "a[1"]).stdout);
    assert_eq!(check["health"], "warn", "{check}");
    assert!(check["found"].as_str().unwrap().contains("invalid list of hosts"), "{check}");
}

#[test]
fn doctor_warns_of_public_addresses() {
    let Some(scene) = Scene::with_nodes("doctor_warns_of_public_addresses") else { return };
    // A network of its own, with a public address and a private one.
    let script = "ip link set lo up && ip link add d0 type veth peer name d1 && ip link set d1 up && \
                  ip address add 203.0.113.5/24 dev d0 && ip address add 10.9.9.9/24 dev d0 && \
                  ip link set d0 up && exec \"$0\" \"$@\"";
    let doctor = |more: &[&str]| {
        let hayase = scene.command(&[]).get_program().to_owned();
        let mut command = Command::new("unshare");
        command
            .args(["--net", "sh", "-c", script])
            .arg(hayase)
            .args(["doctor", "--json"])
            .args(more);
        command.env("HAYASE_RUNTIME_DIR", scene.path("run")).env_remove("SLURM_JOB_ID");
        exposed(&done(&command.output().unwrap()).stdout)
    };
    let (check, listening) = doctor(&[]);
    let expected = serde_json::json!([
        {"address": "10.9.9.9", "reach": "private"}, {"address": "203.0.113.5", "reach": "public"}
    ]);
    assert_eq!((&check["health"], &listening), (&"warn".into(), &expected), "{check}");
    assert!(check["todo"].as_str().unwrap().contains("--encrypt"), "{check}");
    // A job on hosts of the private network does not use the other address.
    let (check, listening) = doctor(&["--hosts", "10.9.9.9,10.9.9.1"]);
    let expected = serde_json::json!([{"address": "10.9.9.9", "reach": "private"}]);
    assert_eq!((&check["health"], &listening), (&"ok".into(), &expected), "{check}");
    let (check, _) = doctor(&["--hosts", "203.0.113.5,203.0.113.1"]);
    assert_eq!(check["health"], "warn", "{check}");
}

#[test]
fn storage_nodes_that_can_not_be_are_refused_before_anything_is_made() {
    let scene = Scene::new();
    for (wish, said) in [
        ("0", "no node stores files"),
        ("4", "4 nodes cannot store files: the job has only 3"),
        ("1,3", "there is no node 3: the last of the job is node 2"),
        ("n1,x", "no node of the job is called `x`"),
        ("2-1,0", "`2-1` is not a node number or a range"),
    ] {
        scene.up(&["--nodes", "3", "--storage-nodes", wish]).with(2).says(&[said]);
    }
    let wide = ["--nodes", "3", "--storage-nodes", "2", "--stripe", "64K", "--width", "3"];
    scene.up(&wide).with(2).says(&["only 2 nodes of the job store files"]);
    assert!(!scene.path("run/t").exists());
    scene.check_nothing_left();
}

#[test]
fn servers_alone_come_up_and_go_without_mounts() {
    let scene = Scene::new();
    let wish = ["--nodes", "5", "--no-namespaces", "--no-image", "--no-mounts", "--job", "s"];
    scene.up(&wish).with(0);
    let status = scene.hayase(&["status", "--json"]).with(0).stdout;
    let status: Value = serde_json::from_str(&status).unwrap();
    let job = &status["jobs"][0];
    assert_eq!((&job["state"], &job["limiter"]), (&"up".into(), &"counted".into()), "{job:#}");
    assert_eq!(job["nodes"][4]["supervisor"]["mount"], "not-started", "{job:#}");
    scene.hayase(&["down"]).with(0);
    scene.check_nothing_left();
}
