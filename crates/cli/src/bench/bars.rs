//! SVG plots: groups of horizontal bars, each group relative to one of them.

use std::path::Path;

use plotters::drawing::IntoDrawingArea;
use plotters::element::{Rectangle, Text};
use plotters::prelude::SVGBackend;
use plotters::style::{Color, WHITE};

use super::plot::COLOURS;

const WIDTH: u32 = 900;
const MARGIN: i32 = 16;
const LINE: i32 = 20;
/// Length of a bar of 1.
const ONE: f64 = 220.0;
const LONGEST: f64 = 3.0;
/// Where bars begin, right of their group's title.
const LEFT: i32 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Bars {
    /// All names of bars, in the order of their colours.
    pub(super) names: Vec<String>,
    pub(super) groups: Vec<BarGroup>,
}

/// Bars that are compared with each other.
#[derive(Debug)]
pub(super) struct BarGroup {
    pub(super) title: String,
    pub(super) bars: Vec<(String, f64)>,
}

impl Bars {
    /// Writes the SVG file.
    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        std::fs::write(path, self.svg()?).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    pub(super) fn svg(&self) -> Result<String, String> {
        let lines: usize = self.groups.iter().map(|group| group.bars.len() + 2).sum();
        let height = u32::try_from(lines).unwrap_or(1) * LINE as u32 + 2 * MARGIN as u32;
        let mut text = String::new();
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        let wrong = |error: &dyn std::fmt::Display| format!("cannot draw: {error}");
        root.fill(&WHITE).map_err(|error| wrong(&error))?;
        let mut y = MARGIN;
        for group in &self.groups {
            root.draw(&Text::new(group.title.as_str(), (LEFT, y), ("sans-serif", 15))).map_err(|error| wrong(&error))?;
            y += LINE;
            for (name, value) in &group.bars {
                let colour =
                    self.names.iter().zip(COLOURS.iter().cycle()).find(|(known, _)| *known == name).map_or(&COLOURS[0], |(_, c)| c);
                let end = LEFT + (value.clamp(0.0, LONGEST) * ONE) as i32;
                root.draw(&Rectangle::new([(LEFT, y + 2), (end, y + LINE - 4)], colour.filled())).map_err(|error| wrong(&error))?;
                let label = format!("{name} {value:.2}");
                root.draw(&Text::new(label, (end + 6, y + 2), ("sans-serif", 13))).map_err(|error| wrong(&error))?;
                y += LINE;
            }
            y += LINE;
        }
        root.present().map_err(|error| wrong(&error))?;
        drop(root);
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_has_its_name_and_value() {
        let bars = vec![("a".to_owned(), 1.0), ("b".to_owned(), 250.0)];
        let svg = Bars { names: vec!["a".into(), "b".into()], groups: vec![BarGroup { title: "reads <4k>".into(), bars }] }.svg().unwrap();
        assert!(svg.contains("reads &lt;4k&gt;") && svg.contains("a 1.00") && svg.contains("b 250.00"), "{svg}");
        assert!(!svg.contains("55016"), "a long bar is cut off: {svg}");
    }
}
