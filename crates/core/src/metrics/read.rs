//! Reads figures from the text in which they are shown, ours or anybody's: for those who look at several processes at once.
//!
//! The text comes from outside. Lines that are none are passed over, and no more than [`MAX_FIGURES`] are kept.

/// Most figures of one text.
pub const MAX_FIGURES: usize = 20_000;
/// Most labels of one figure.
const MAX_LABELS: usize = 16;

/// One number with its name and labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name; of a histogram with `_sum` or `_count` behind it.
    pub name: String,
    /// Labels, as they were written.
    pub labels: Vec<(String, String)>,
    /// The number; never NaN.
    pub value: f64,
}

impl Figure {
    /// A label's value.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// All figures of a text but the buckets of histograms.
pub fn read(text: &str) -> Vec<Figure> {
    figures(text).filter(|figure| !figure.name.ends_with("_bucket")).take(MAX_FIGURES).collect()
}

/// All figures of a text of our own, buckets included.
pub(super) fn read_all(text: &str) -> Vec<Figure> {
    figures(text).collect()
}

fn figures(text: &str) -> impl Iterator<Item = Figure> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(read_line)
}

fn read_line(line: &str) -> Option<Figure> {
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => read_labels(rest)?,
        None => (Vec::new(), rest),
    };
    // A time may follow the number.
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    (!name.is_empty() && !value.is_nan()).then(|| Figure { name: name.to_owned(), labels, value })
}

/// Labels behind the opening bracket, and what follows the closing one.
fn read_labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (key, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        if labels.len() == MAX_LABELS {
            return None;
        }
        labels.push((key.trim().to_owned(), value));
        rest = &after[end..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Exposition;
    use proptest::prelude::*;

    #[test]
    fn what_others_write_is_read_and_nonsense_is_passed_over() {
        let text = "# TYPE a counter\na 1\na_bucket{le=\"1\"} 3\nb{x=\"y\",z=\"\\\"\\\\\\n}\",} 2.5e3 1700000000\n\
                    c NaN\nd{x=\"y\nd{x} 1\n{} 4\n  5\nnothing\ne +Inf\n";
        let read = read(text);
        let names: Vec<&str> = read.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "e"]);
        assert_eq!((read[1].value, read[1].label("z")), (2500.0, Some("\"\\\n}")));
        assert_eq!(read[1].label("none"), None);
    }

    proptest! {
        #[test]
        fn what_was_shown_is_read_back(value in -1e12..1e12f64, job in "\\PC*", feed in any::<String>()) {
            let mut shown = Exposition::default();
            // Carriage returns end lines for readers, and no name of ours holds one.
            let (job, feed) = (job.replace('\r', ""), feed.replace('\r', ""));
            shown.number("forebay_net_feed_jobs", &[("job", &job), ("feed", &feed)], value);
            let read = read(&shown.finish());
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!((read[0].label("job"), read[0].label("feed")), (Some(job.as_str()), Some(feed.as_str())));
            prop_assert_eq!(read[0].value, value);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            read(&text);
        }
    }
}
