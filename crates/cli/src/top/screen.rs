//! What the screen looks like.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};
use uringlet_trace::summary::{SummaryKey, SummaryRow, TraceSummary, duration};

use super::processes::ProcessRow;
use super::state::{SortColumn, TopState};

const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

pub(super) fn draw(frame: &mut Frame<'_>, state: &TopState) {
    let [title, processes, requests, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
    let rows = state.rows();
    // The sum of nothing is -0.
    let rate = rows.iter().map(|row| row.rate).sum::<f64>() + 0.0;
    frame.render_widget(Line::styled(format!("uringlet top: {} processes, {rate:.0} requests/s", rows.len()), HEAD), title);
    draw_processes(frame, state, &rows, processes);
    draw_requests(frame, state, requests);
    frame.render_widget(keys_line(state), keys);
}

fn keys_line(state: &TopState) -> Line<'_> {
    if state.is_typing {
        return Line::from(format!("only names with: {}_  (Enter: done, Esc: all)", state.filter));
    }
    let filter = if state.filter.is_empty() { String::new() } else { format!("  [{}]", state.filter) };
    Line::from(format!("q quit  p n r o w sort  / filter{filter}  s sample  t trace")).style(Color::Gray)
}

fn draw_processes(frame: &mut Frame<'_>, state: &TopState, rows: &[&ProcessRow], area: Rect) {
    let heading = |text: &'static str, column: SortColumn| {
        let style = if state.sort == column { HEAD.add_modifier(Modifier::UNDERLINED) } else { HEAD };
        Cell::from(text).style(style)
    };
    let header = Row::new([
        heading("PID", SortColumn::Pid),
        heading("NAME", SortColumn::Name),
        heading("RINGS", SortColumn::Rings),
        heading("OPS/S", SortColumn::Rate),
        Cell::from("REQUESTS").style(HEAD),
        heading("WORKERS", SortColumn::Workers),
        Cell::from("DELAYED").style(HEAD),
    ]);
    let line = |row: &&ProcessRow| {
        Row::new([
            row.pid.to_string(),
            row.name.clone(),
            row.rings.to_string(),
            format!("{:.0}", row.rate),
            row.requests.to_string(),
            row.workers.to_string(),
            row.throttled.to_string(),
        ])
    };
    let widths = [8, 18, 6, 12, 14, 8, 8].map(Constraint::Length);
    let table = Table::new(rows.iter().map(line), widths).header(header).row_highlight_style(SELECTED);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(state.selected()));
}

fn draw_requests(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let text = match state.sample() {
        Some(Ok(summary)) => return draw_sample(frame, summary, area),
        Some(Err(why)) => why.clone(),
        None if state.is_sampling() => "counting for a second ...".to_owned(),
        None => "s: opcodes, files and latencies of the selected process, by a trace of it: about 0.15 µs a request".to_owned(),
    };
    let block = Block::new().borders(Borders::TOP).title("requests");
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn draw_sample(frame: &mut Frame<'_>, summary: &TraceSummary, area: Rect) {
    let [opcodes, files] = Layout::vertical([Constraint::Fill(1); 2]).areas(area);
    for (title, key, area) in [("opcodes, of one second", SummaryKey::Opcode, opcodes), ("slowest files", SummaryKey::File, files)] {
        let header = Row::new(["COUNT", "ERRORS", "BYTES", "P50", "P99", "MAX", ""]).style(HEAD);
        let line = |row: &SummaryRow| {
            let [p50, p99, max] = [row.p50_ns, row.p99_ns, row.max_ns].map(duration);
            Row::new([row.count.to_string(), row.errors.to_string(), row.bytes.to_string(), p50, p99, max, row.name.clone()])
        };
        let widths = [9, 7, 12, 9, 9, 9].map(Constraint::Length).into_iter().chain([Constraint::Fill(1)]);
        let rows = summary.rows(key);
        let block = Block::new().borders(Borders::TOP).title(title);
        frame.render_widget(Table::new(rows.iter().map(line), widths).header(header).block(block), area);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn processes_and_keys_are_on_the_screen() {
        let mut state = TopState::default();
        let row = ProcessRow { pid: 4711, name: "fio".into(), rings: 2, requests: 900, rate: 12.4, workers: 3, throttled: 1 };
        state.set_processes(vec![row]);
        let mut terminal = Terminal::new(TestBackend::new(90, 12)).unwrap();
        terminal.draw(|frame| draw(frame, &state)).unwrap();
        let text = terminal.backend().to_string();
        for part in ["1 processes, 12 requests/s", "PID", "4711", "fio", "900", "s: opcodes", "q quit"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
}
