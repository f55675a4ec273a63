//! Test 46 of the coherence protocol: one file, operations dealt to nodes, against a flat model.
//!
//! Operations follow each other, so whatever the node, each must see all that came before.
//! `HAYASE_E2E_SEED` repeats a run; a failure tells the seed and the last operations.

use std::collections::VecDeque;

use anyhow::{Context, ensure};
use hayase_e2e::actor::data::difference;
use hayase_e2e::random::Random;
use hayase_e2e::{
    Data, File, JobOptions, Map, MapKind, Node, Scene, Suite, TestResult, Whence, note,
};

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_model", JobOptions::three())
        .posix("coherence_46_home_and_remote", home_and_remote)
        .posix("coherence_46_two_remotes", two_remotes)
        .posix("coherence_46_striped", striped)
        .posix("coherence_46_three_nodes", three_nodes)
}

/// A is the home, B another node.
fn home_and_remote(scene: &Scene<'_>) -> TestResult {
    operate(scene, &scene.a, &scene.path("file"), &[&scene.a, &scene.b], 461)
}

/// Neither node has the bytes.
fn two_remotes(scene: &Scene<'_>) -> TestResult {
    operate(scene, &scene.c, &scene.path("file"), &[&scene.a, &scene.b], 462)
}

fn striped(scene: &Scene<'_>) -> TestResult {
    let dir = scene.striped("striped")?;
    operate(scene, &scene.a, &format!("{dir}/file"), &[&scene.a, &scene.b], 463)
}

fn three_nodes(scene: &Scene<'_>) -> TestResult {
    operate(scene, &scene.a, &scene.path("file"), &scene.nodes(), 464)
}

const OPERATIONS: u64 = 1000;
const SIZE_MAX: u64 = 400_000;
const PAGE: u64 = 4096;
const STORY_MAX: usize = 12;

// Bits of fallocate(2).
const KEEP_SIZE: u32 = 1;
const PUNCH: u32 = 2;
const ZERO: u32 = 16;

fn operate(
    scene: &Scene<'_>,
    creator: &Node,
    path: &str,
    nodes: &[&Node],
    seed: u64,
) -> TestResult {
    let seed =
        std::env::var("HAYASE_E2E_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(seed);
    creator.write_file(path, Data::fill(0, 0))?;
    let open = |node: &&Node| node.open(path, "rw");
    let mut game = Game {
        path,
        files: nodes.iter().map(open).collect::<Result<_, _>>()?,
        model: Vec::new(),
        random: Random::new(seed),
        story: VecDeque::new(),
        refused: 0,
        maps_direct_files: scene.job.maps_direct_files(),
    };
    for number in 0..OPERATIONS {
        let turn = (number % nodes.len() as u64) as usize;
        let result = game.step(number, turn);
        result.with_context(|| {
            let story: Vec<_> = game.story.iter().map(String::as_str).collect();
            format!("seed {seed}, operation {number}; the last ones:\n{}", story.join("\n"))
        })?;
    }
    note(&format!("seed {seed}: {OPERATIONS} operations, {} not supported", game.refused));
    Ok(())
}

struct Game<'a> {
    path: &'a str,
    /// One descriptor per node, in turn order.
    files: Vec<File>,
    model: Vec<u8>,
    random: Random,
    story: VecDeque<String>,
    refused: u32,
    maps_direct_files: bool,
}

impl Game<'_> {
    fn step(&mut self, number: u64, turn: usize) -> TestResult {
        match self.random.below(16) {
            0..=2 => self.write(number, turn)?,
            3..=5 => self.read(turn)?,
            6 => self.truncate(turn)?,
            7 => self.append(number, turn)?,
            8 => self.map_read(turn)?,
            9 | 10 => self.map_write(number, turn)?,
            11 => self.allocate(turn)?,
            12 => self.copy(turn)?,
            13 => self.reopen(turn)?,
            14 => self.direct_read(turn)?,
            _ => {
                self.tell(turn, "fsync");
                self.files[turn].fsync()?;
            }
        }
        self.look(number)
    }

    fn tell(&mut self, turn: usize, what: &str) {
        if self.story.len() == STORY_MAX {
            self.story.pop_front();
        }
        let node = self.files[turn].node().index();
        self.story.push_back(format!("  node {node}: {what}, size {}", self.model.len()));
    }

    fn size(&self) -> u64 {
        self.model.len() as u64
    }

    /// A range of the file as it is, not empty unless the file is.
    fn range(&mut self, len_max: u64) -> (u64, u64) {
        let offset = self.random.below(self.size());
        let len = 1 + self.random.below(len_max);
        (offset, len.min(self.size() - offset))
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[start..end].copy_from_slice(bytes);
    }

    fn expected(&self, offset: u64, len: u64) -> Data {
        let clamp = |at: u64| (at.min(self.size())) as usize;
        Data::bytes(&self.model[clamp(offset)..clamp(offset + len)])
    }

    fn write(&mut self, seed: u64, turn: usize) -> TestResult {
        let offset = self.random.below(SIZE_MAX * 3 / 4);
        let len_max = if self.random.below(8) == 0 { SIZE_MAX / 2 } else { 20_000 };
        let len = (1 + self.random.below(len_max)).min(SIZE_MAX - offset);
        self.tell(turn, &format!("write {len} at {offset}"));
        let data = Data::pattern(seed, len);
        self.files[turn].pwrite(offset, data.clone())?;
        self.store(offset, &data.at(offset).map_err(anyhow::Error::msg)?);
        Ok(())
    }

    fn read(&mut self, turn: usize) -> TestResult {
        let offset = self.random.below(self.size() + 5000);
        let len = 1 + self.random.below(100_000);
        self.tell(turn, &format!("read {len} at {offset}"));
        let found = self.files[turn].pread(offset, len)?;
        let start = offset.min(self.size()) as usize;
        let end = (offset + len).min(self.size()) as usize;
        let fault = difference(offset, &self.model[start..end.max(start)], &found);
        ensure!(fault.is_none(), "read: {}", fault.unwrap_or_default());
        Ok(())
    }

    fn truncate(&mut self, turn: usize) -> TestResult {
        let size = self.random.below(SIZE_MAX);
        self.tell(turn, &format!("truncate to {size}"));
        // By path only now and then: the call needs a child process.
        if self.random.below(4) == 0 {
            self.files[turn].node().truncate(self.path, size)?;
        } else {
            self.files[turn].truncate(size)?;
        }
        self.model.resize(size as usize, 0);
        Ok(())
    }

    fn append(&mut self, seed: u64, turn: usize) -> TestResult {
        let len = 1 + self.random.below(10_000);
        if self.size() + len > SIZE_MAX {
            return Ok(());
        }
        self.tell(turn, &format!("append {len}"));
        let file = self.files[turn].node().open(self.path, "w+append")?;
        // Where the bytes will lie is where the model ends.
        let bytes = Data::pattern(seed, len).at(self.size()).map_err(anyhow::Error::msg)?;
        file.write(Data::bytes(&bytes))?;
        file.close()?;
        self.store(self.size(), &bytes);
        Ok(())
    }

    /// A mapping; none where the kernel has none of files that are open elsewhere.
    fn map(
        &mut self,
        turn: usize,
        base: u64,
        len: u64,
        kind: MapKind,
    ) -> anyhow::Result<Option<Map>> {
        match self.files[turn].map_at(base, len, kind) {
            Err(refused) if refused.errno == "ENODEV" && !self.maps_direct_files => {
                self.refused += 1;
                Ok(None)
            }
            result => Ok(Some(result?)),
        }
    }

    fn map_read(&mut self, turn: usize) -> TestResult {
        if self.model.is_empty() {
            return Ok(());
        }
        let (offset, len) = self.range(50_000);
        self.tell(turn, &format!("read {len} at {offset} of a mapping"));
        let base = offset - offset % PAGE;
        let kind = if self.random.below(2) == 0 { MapKind::SharedRead } else { MapKind::Private };
        let Some(map) = self.map(turn, base, offset + len - base, kind)? else { return Ok(()) };
        let (start, end) = (offset as usize, (offset + len) as usize);
        map.check(offset - base, &self.model[start..end])?;
        map.unmap()?;
        Ok(())
    }

    fn map_write(&mut self, seed: u64, turn: usize) -> TestResult {
        if self.model.is_empty() {
            return Ok(());
        }
        let (offset, len) = self.range(20_000);
        self.tell(turn, &format!("write {len} at {offset} of a mapping"));
        let base = offset - offset % PAGE;
        let kind = MapKind::SharedWrite;
        let Some(map) = self.map(turn, base, offset + len - base, kind)? else { return Ok(()) };
        let bytes = Data::pattern(seed, len).at(offset).map_err(anyhow::Error::msg)?;
        map.write(offset - base, Data::bytes(&bytes))?;
        map.sync()?;
        map.unmap()?;
        self.store(offset, &bytes);
        Ok(())
    }

    fn allocate(&mut self, turn: usize) -> TestResult {
        let offset = self.random.below(SIZE_MAX / 2);
        let len = 1 + self.random.below(SIZE_MAX / 4);
        let modes = [0, KEEP_SIZE, KEEP_SIZE | PUNCH, ZERO, ZERO | KEEP_SIZE];
        let mode = modes[self.random.below(modes.len() as u64) as usize];
        self.tell(turn, &format!("fallocate {mode:#x}, {len} at {offset}"));
        match self.files[turn].allocate(mode, offset, len) {
            Err(refused) if refused.errno == "EOPNOTSUPP" => {
                self.refused += 1;
                return Ok(());
            }
            result => result?,
        }
        if mode & KEEP_SIZE == 0 && self.size() < offset + len {
            self.model.resize((offset + len) as usize, 0);
        }
        if mode & (PUNCH | ZERO) != 0 {
            let (start, end) = (offset.min(self.size()), (offset + len).min(self.size()));
            self.model[start as usize..end as usize].fill(0);
        }
        Ok(())
    }

    /// Within the file; the ranges do not touch.
    fn copy(&mut self, turn: usize) -> TestResult {
        if self.size() < 1000 {
            return Ok(());
        }
        let half = self.size() / 2;
        let len = 1 + self.random.below(half.min(100_000));
        let from = self.random.below(half - len + 1);
        let to = half + self.random.below(half);
        let len = len.min(SIZE_MAX - to);
        self.tell(turn, &format!("copy {len} from {from} to {to}"));
        let file = &self.files[turn];
        let count = file.copy_range(from, file, to, len)?;
        ensure!(count == len, "copied {count} of {len}");
        let bytes = self.model[from as usize..(from + len) as usize].to_vec();
        self.store(to, &bytes);
        Ok(())
    }

    fn reopen(&mut self, turn: usize) -> TestResult {
        let flags = ["rw", "rw", "rw+sync"][self.random.below(3) as usize];
        self.tell(turn, &format!("reopen {flags}"));
        let node = self.files[turn].node().clone();
        let fresh = node.open(self.path, flags)?;
        std::mem::replace(&mut self.files[turn], fresh).close()?;
        Ok(())
    }

    fn direct_read(&mut self, turn: usize) -> TestResult {
        self.tell(turn, "read with O_DIRECT");
        let file = self.files[turn].node().open(self.path, "r+direct")?;
        let offset = self.random.below(self.size() / PAGE + 1) * PAGE;
        let found = file.pread(offset, 16 * PAGE)?;
        let end = (offset + 16 * PAGE).min(self.size()) as usize;
        let start = (offset.min(self.size())) as usize;
        let fault = difference(offset, &self.model[start..end], &found);
        ensure!(fault.is_none(), "O_DIRECT: {}", fault.unwrap_or_default());
        file.close()?;
        Ok(())
    }

    /// What everybody must agree on after each operation, and now and then the whole file.
    fn look(&mut self, number: u64) -> TestResult {
        let whole = number % 40 == 39;
        for file in &self.files {
            let node = file.node();
            let size = file.attr()?.size;
            ensure!(size == self.size(), "node {}: fstat says {size}", node.index());
            if number % 4 == 3 {
                let end = file.seek(Whence::End, 0)?;
                ensure!(end == size, "node {}: SEEK_END {end}, the size {size}", node.index());
            }
            if whole {
                file.check(0, self.expected(0, self.size()))?;
                ensure!(node.stat(self.path)?.size == size, "stat on node {}", node.index());
            }
        }
        Ok(())
    }
}
