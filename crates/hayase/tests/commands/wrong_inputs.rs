//! Inputs that cannot be meant, and what is said of each: what is wrong, where, and what to do. The snapshot is for
//! reading.

use std::fs;

use crate::packs::make_tree;
use crate::support::{Scene, check_snapshot};

/// Typed one after the other, without a job.
const WITHOUT_JOB: &str = "
up --nodes 0
up --nodes 100000
up --nodes two
up --nodes
up --nodes 2 --hosts a,b
up --hosts a[1-
up --hosts
up --shared 0
up --shared 1K
up --shared ten
up --shared -1
up --shared 900T --storage storage
up --local 1M --storage storage
up --storage gone
up --storage file
up --storage /proc
up --storage
up --mount file --storage storage
up --mount full --storage storage
up --mount /proc/nowhere --storage storage
up --job no/slash
up --job .
up --stripe 1000 --storage storage
up --stripe 0 --storage storage
up --nodes 2 --width 3 --storage storage
up --tier gone --storage storage
up --tier file --storage storage
up --tier s3:/bucket/x --storage storage
up --tier s3:bucket --storage storage
up --tier ftp://host/dir --storage storage
up --tier s3://A/x --storage storage
up --endpoint http://127.0.0.1:9 --storage storage
up --deadline 5 --storage storage
up --tier tree --deadline yesterday --storage storage
up --tier tree --fsync never --storage storage
up --metrics 0 --storage storage
up --metrics host:port --storage storage
up --system-cores 3-1 --storage storage
up --system-cores 1000-1001 --storage storage
up --move-interrupts --storage storage
up --cpu-budget 0 --storage storage
up --storage-nodes 7 --storage storage
up --timeout never --storage storage
up --transport pigeon --storage storage
up --names large --storage storage
up --no-such-option
up --shared 12Q --storage storage
up --shared --local 1G
up --local -5M
up --nodes -1
up --nodes 2 --width x
up --width -1
up --timeout -1
up --kernel-profile 5.4
up --flush-open 5 --storage storage
up --no-namespaces --storage storage
run
run --in tree:nowhere/in -- true
run --out cache/x:out -- true
run --in tree -- true
run --nodes 1 --storage storage
exec
exec -- true
exec --node 1 -- true
exec --node x -- true
exec --node -1 -- true
exec --job gone -- true
down gone
down --job gone
down --job file
down --drain never
status --job gone
top --count 0
top --count -1
top --interval 0
flush gone
flush --timeout never
evict
evict gone
explain
explain file
layout
layout get file
layout set --stripe 1000 tree
layout set --width 2
layout set --width x tree
layout set --stripe 12Q tree
resume
resume gone
resume tree
resume file
report
report --output out.html
stage
stage in gone in
stage in tree tree
stage in tree tree/sub/in
stage in tree in --streams 0
stage in tree in --part-size 1
stage in tree in --include [
stage in tree in --max-delete 3
stage in tree in --delete --max-delete x
stage in tree in --memory 1M
stage in tree in --bandwidth fast
stage in tree in --key-file gone
stage in tree in --key-file file
stage in tree in --overwrite sometimes
stage in s3://A/x in
stage in http://host/x in
stage out tree out --pack 1
stage out tree out --zstd
stage out tree out --pack 12Q
stage out tree out --zstd=30
stage out tree file
stage out tree /proc/nowhere
stage verify tree
stage verify tree gone
pack
pack list tree
pack extract tree no-such-name
pack create gone
pack verify gone
pack rekey tree
mount
mount gone point
mount tree file
mount tree tree/sub
container show file
container check gone
container export gone out
noise --processors 1000
noise --work 99
noise --count 0
noise --phase 0
completions csh
man
sttaus
--no-such-option
";

/// Without what differs between machines: free room, and processors.
fn same_everywhere(said: &str) -> String {
    let mut words: Vec<&str> = said.split(' ').collect();
    for at in 2..words.len() {
        match words[at] {
            "free," => (words[at - 2], words[at - 1]) = ("N", "GiB"),
            _ if words[at - 2..at] == ["some", "of"] => words[at] = "0-N",
            _ => {}
        }
    }
    words.join(" ")
}

#[test]
fn of_each_wrong_input_it_is_said_what_is_wrong() {
    let scene = Scene::new();
    make_tree(&scene);
    fs::write(scene.path("file"), "").unwrap();
    fs::create_dir_all(scene.path("full/shared/something")).unwrap();
    fs::create_dir_all(scene.path("point")).unwrap();
    let mut told = String::new();
    for line in WITHOUT_JOB.lines().filter(|line| !line.is_empty()) {
        let args: Vec<&str> = line.split(' ').collect();
        let done = scene.hayase(&args);
        assert_ne!(done.code, 0, "{line}: {done:#?}");
        let said = done.stderr.split("\n\nUsage:").next().unwrap_or_default().trim_end();
        assert!(!said.contains("panicked") && !said.is_empty(), "{line}: {done:#?}");
        let said = said.replace("\n\nFor more information, try '--help'.", "");
        told.push_str(&format!("$ hayase {line}\n[{}] {}\n\n", done.code, same_everywhere(&said)));
    }
    check_snapshot("wrong-inputs.txt", &scene.plain(&told));
    scene.check_nothing_left();
}
