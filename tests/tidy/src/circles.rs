//! Circles in a graph: its strongly connected components of two and more.

use std::collections::{BTreeMap, BTreeSet};

/// Who points at whom, by name.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// Groups in which everybody can be reached from everybody, each in order of name, largest first.
/// A node that points at itself alone is none.
pub fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for start in graph.keys() {
        visit(graph, start, &mut seen, &mut order);
    }
    let backwards = reversed(graph);
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for start in order.into_iter().rev() {
        let mut group = Vec::new();
        visit(&backwards, start, &mut seen, &mut group);
        if group.len() > 1 {
            let mut group: Vec<_> = group.into_iter().map(str::to_owned).collect();
            group.sort_unstable();
            found.push(group);
        }
    }
    found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    found
}

/// Adds what can be reached from `start` to `order`, each after all that it points at (Kosaraju).
fn visit<'a>(
    graph: &'a Graph,
    start: &'a str,
    seen: &mut BTreeSet<&'a str>,
    order: &mut Vec<&'a str>,
) {
    let next = |node: &str| graph.get(node).into_iter().flatten();
    if !seen.insert(start) {
        return;
    }
    let mut path = vec![(start, next(start))];
    while let Some((node, rest)) = path.last_mut() {
        match rest.find(|target| !seen.contains(target.as_str())) {
            Some(target) => {
                seen.insert(target);
                path.push((target, next(target)));
            }
            None => {
                order.push(node);
                path.pop();
            }
        }
    }
}

fn reversed(graph: &Graph) -> Graph {
    let mut backwards = Graph::new();
    for (node, targets) in graph {
        for target in targets {
            backwards.entry(target.clone()).or_default().insert(node.clone());
        }
    }
    backwards
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `arrows` as `ab bc`; circles as `abc de`.
    fn check(arrows: &str, expected: &str) {
        let mut graph = Graph::new();
        for arrow in arrows.split_whitespace() {
            graph.entry(arrow[..1].to_owned()).or_default().insert(arrow[1..].to_owned());
        }
        let found: Vec<_> = circles(&graph).iter().map(|circle| circle.concat()).collect();
        assert_eq!(found.join(" "), expected, "{arrows}");
    }

    #[test]
    fn circles_are_found() {
        check("", "");
        check("ab bc ac", "");
        check("aa ab", "");
        check("ab ba", "ab");
        check("ab bc ca cd", "abc");
        check("ab ba bc cd dc", "ab cd");
        check("xy ab bc ca yx", "abc xy");
        check("ab bc cb ba", "abc");
    }
}
