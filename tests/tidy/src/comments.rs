//! What comments say: whole lines of `//`, `///` and `//!`, those that follow each other read as one text.

/// Comment lines without a line of code between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// Number of its first line, from 1.
    pub line: usize,
    /// Its lines without their signs, joined by line ends.
    pub text: String,
}

impl Comment {
    /// The line of the file on which a byte of the text stands.
    pub fn line_of(&self, at: usize) -> usize {
        self.line + self.text[..at].matches('\n').count()
    }
}

/// All of a file in order. Comments behind code on the same line, and blocks `/* */`, are left out.
pub fn comments(source: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let mut goes_on = false;
    for (number, line) in source.lines().enumerate() {
        let Some(said) = line.trim_start().strip_prefix("//") else {
            goes_on = false;
            continue;
        };
        let said = said.trim_start_matches(['/', '!']).trim();
        match found.last_mut().filter(|_| goes_on) {
            Some(comment) => {
                comment.text.push('\n');
                comment.text.push_str(said);
            }
            None => found.push(Comment { line: number + 1, text: said.to_owned() }),
        }
        goes_on = true;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_follow_each_other_are_one_text() {
        let found = comments("//! a\n//! b\n\nx // c\n/// d\nfn f() {\n    // e\n}\n");
        let told: Vec<_> = found.iter().map(|c| (c.line, c.text.as_str())).collect();
        assert_eq!(told, [(1, "a\nb"), (5, "d"), (7, "e")]);
        assert_eq!((found[0].line_of(0), found[0].line_of(2)), (1, 2));
    }
}
