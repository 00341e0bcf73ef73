//! SVG plots: lines over logarithmic axes, in panels side by side.

use std::ops::Range;
use std::path::Path;

use plotters::chart::ChartBuilder;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Text};
use plotters::prelude::{IntoLogRange, SVGBackend};
use plotters::series::LineSeries;
use plotters::style::{Color, RGBColor, ShapeStyle, WHITE};

use super::summary::Summary;

const PANEL: (u32, u32) = (680, 400);
/// Width of the legend, right of the lines.
const LEGEND: u32 = 150;
const PANELS_A_LINE: usize = 2;
/// Distinguishable with colour blindness (the palette of Okabe and Ito).
pub(super) const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
    RGBColor(150, 150, 60),
];

/// Panels with common colours.
#[derive(Debug)]
pub(super) struct Plot {
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) panels: Vec<Panel>,
}

#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    /// Name and points of each line. An empty line still takes a colour.
    pub(super) lines: Vec<(String, Vec<(f64, Summary)>)>,
}

impl Plot {
    /// Writes the SVG file.
    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let text = self.svg()?;
        std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    pub(super) fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        let columns = self.panels.len().clamp(1, PANELS_A_LINE);
        let lines = self.panels.len().div_ceil(columns).max(1);
        let size = (PANEL.0 * u32::try_from(columns).unwrap_or(1), PANEL.1 * u32::try_from(lines).unwrap_or(1));
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let wrong = |error: &dyn std::fmt::Display| format!("cannot draw: {error}");
        root.fill(&WHITE).map_err(|error| wrong(&error))?;
        for (panel, area) in self.panels.iter().zip(root.split_evenly((lines, columns))) {
            self.draw(panel, &area).map_err(|error| wrong(&error))?;
        }
        root.present().map_err(|error| wrong(&error))?;
        drop(root);
        Ok(text)
    }

    fn draw(
        &self,
        panel: &Panel,
        area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn std::error::Error + '_>> {
        let Some((xs, ys)) = panel.ranges() else { return Ok(()) };
        let (area, legend) = area.split_horizontally(PANEL.0 - LEGEND);
        let mut chart = ChartBuilder::on(&area);
        chart.caption(&panel.title, ("sans-serif", 18)).margin(12).x_label_area_size(42).y_label_area_size(64);
        let mut chart = chart.build_cartesian_2d(xs.log_scale().base(2.0), ys.log_scale())?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x_label).y_desc(&self.y_label).light_line_style(WHITE).x_label_formatter(&short).y_label_formatter(&short);
        mesh.draw()?;
        let mut legend_y = 60;
        for ((name, points), colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
            let points = positive(points);
            if points.is_empty() {
                continue;
            }
            let style = ShapeStyle::from(colour).stroke_width(2);
            let medians = points.iter().map(|(x, y)| (*x, y.median));
            chart.draw_series(LineSeries::new(medians.clone(), style))?;
            chart.draw_series(medians.map(|at| Circle::new(at, 3, colour.filled())))?;
            let spreads = points.iter().filter(|(_, y)| y.min > 0.0);
            chart.draw_series(spreads.map(|(x, y)| PathElement::new(vec![(*x, y.min), (*x, y.max)], ShapeStyle::from(colour))))?;
            legend.draw(&PathElement::new(vec![(0, legend_y), (18, legend_y)], style))?;
            legend.draw(&Text::new(name.as_str(), (24, legend_y - 6), ("sans-serif", 13)))?;
            legend_y += 20;
        }
        Ok(())
    }
}

fn positive(points: &[(f64, Summary)]) -> Vec<(f64, Summary)> {
    points.iter().filter(|(x, y)| *x > 0.0 && y.median > 0.0).copied().collect()
}

/// `1.5M`, `20k`, `32`.
fn short(value: &f64) -> String {
    let plain = |value: f64, unit: &str| format!("{}{unit}", (value * 10.0).round() / 10.0);
    match *value {
        value @ 1e6.. => plain(value / 1e6, "M"),
        value @ 1e3.. => plain(value / 1e3, "k"),
        value => plain(value, ""),
    }
}

impl Panel {
    /// The ranges of both axes with a margin. `None` without points.
    fn ranges(&self) -> Option<(Range<f64>, Range<f64>)> {
        let points: Vec<(f64, Summary)> = self.lines.iter().flat_map(|(_, points)| positive(points)).collect();
        let least = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
        let xs = least(&mut points.iter().map(|p| p.0))? / 1.2..most(&mut points.iter().map(|p| p.0))? * 1.2;
        let ys = least(&mut points.iter().map(|p| p.1.median))? / 2.0..most(&mut points.iter().map(|p| p.1.max))? * 1.5;
        Some((xs, ys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_are_drawn_as_svg() {
        let point = |x: f64, y: f64| (x, Summary { median: y, min: y, max: y });
        let panel = |title: &str, points| Panel { title: title.to_owned(), lines: vec![("a <line>".to_owned(), points)] };
        let panels = vec![panel("one", vec![point(1.0, 10.0), point(32.0, 20e3), point(8.0, 0.0)]), panel("empty", Vec::new())];
        let svg = Plot { x_label: "x".to_owned(), y_label: "y".to_owned(), panels }.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("one") && svg.contains("a &lt;line&gt;") && !svg.contains("empty"), "{svg}");
    }

    #[test]
    fn axis_labels_use_unit_prefixes() {
        assert_eq!([short(&32.0), short(&20_000.0), short(&1_500_000.0)], ["32", "20k", "1.5M"]);
    }
}
