//! What is shown, and what keys do to it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::processes::ProcessRow;
use super::sampler::TopSample;

/// The column that decides the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortColumn {
    Pid,
    Name,
    Rings,
    #[default]
    Rate,
    Workers,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    None,
    Quit,
    /// To jump into the trace of this process.
    Trace(i32),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TopState {
    processes: Vec<ProcessRow>,
    pub(super) sort: SortColumn,
    pub(super) filter: String,
    /// Keys go into the filter.
    pub(super) is_typing: bool,
    selected: Option<i32>,
    is_sampling: bool,
    sample: Option<(i32, TopSample)>,
}

impl TopState {
    pub(super) fn set_processes(&mut self, processes: Vec<ProcessRow>) {
        self.processes = processes;
    }

    pub(super) fn set_sample(&mut self, sample: Option<(i32, TopSample)>) {
        if sample.is_some() {
            self.sample = sample;
        }
    }

    /// The rows, in order.
    pub(super) fn rows(&self) -> Vec<&ProcessRow> {
        let mut rows: Vec<&ProcessRow> = self.processes.iter().filter(|row| row.name.contains(&self.filter)).collect();
        rows.sort_by(|a, b| {
            let order = match self.sort {
                SortColumn::Pid => a.pid.cmp(&b.pid),
                SortColumn::Name => a.name.cmp(&b.name),
                SortColumn::Rings => b.rings.cmp(&a.rings),
                SortColumn::Rate => b.rate.total_cmp(&a.rate),
                SortColumn::Workers => b.workers.cmp(&a.workers),
            };
            order.then(a.pid.cmp(&b.pid))
        });
        rows
    }

    /// The place of the selected row.
    pub(super) fn selected(&self) -> Option<usize> {
        let rows = self.rows();
        let at = rows.iter().position(|row| Some(row.pid) == self.selected);
        at.or_else(|| (!rows.is_empty()).then_some(0))
    }

    fn selected_pid(&self) -> Option<i32> {
        self.selected().map(|at| self.rows()[at].pid)
    }

    /// The process whose requests are to be counted.
    pub(super) fn sampled_pid(&self) -> Option<i32> {
        if self.is_sampling { self.selected_pid() } else { None }
    }

    /// What is known of the requests of the selected process.
    pub(super) fn sample(&self) -> Option<&TopSample> {
        let wanted = self.sampled_pid()?;
        self.sample.as_ref().filter(|(pid, _)| *pid == wanted).map(|(_, sample)| sample)
    }

    pub(super) const fn is_sampling(&self) -> bool {
        self.is_sampling
    }

    fn select(&mut self, step: isize) {
        let rows = self.rows();
        let Some(at) = self.selected() else { return };
        let to = at.saturating_add_signed(step).min(rows.len() - 1);
        self.selected = Some(rows[to].pid);
    }

    pub(super) fn on_key(&mut self, key: KeyEvent) -> KeyAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return KeyAction::Quit;
        }
        if self.is_typing {
            self.type_key(key.code);
            return KeyAction::None;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return KeyAction::Quit,
            KeyCode::Char('p') => self.sort = SortColumn::Pid,
            KeyCode::Char('n') => self.sort = SortColumn::Name,
            KeyCode::Char('r') => self.sort = SortColumn::Rings,
            KeyCode::Char('o') => self.sort = SortColumn::Rate,
            KeyCode::Char('w') => self.sort = SortColumn::Workers,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => {
                self.selected = self.selected_pid();
                self.is_sampling = !self.is_sampling;
            }
            KeyCode::Char('t') | KeyCode::Enter => return self.selected_pid().map_or(KeyAction::None, KeyAction::Trace),
            KeyCode::Up => self.select(-1),
            KeyCode::Down => self.select(1),
            _ => {}
        }
        KeyAction::None
    }

    fn type_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Enter => self.is_typing = false,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> TopState {
        let row = |pid, name: &str, rate, rings| ProcessRow { pid, name: name.into(), rate, rings, ..ProcessRow::default() };
        let mut state = TopState::default();
        state.set_processes(vec![row(7, "fio", 10.0, 1), row(8, "node", 500.0, 1), row(9, "fio", 90.0, 4)]);
        state
    }

    fn keys(state: &mut TopState, text: &str) -> KeyAction {
        text.chars().map(|c| state.on_key(KeyEvent::from(if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) }))).last().unwrap()
    }

    fn order(state: &TopState) -> Vec<i32> {
        state.rows().iter().map(|row| row.pid).collect()
    }

    #[test]
    fn keys_sort_and_filter() {
        let mut state = state();
        assert_eq!(order(&state), [8, 9, 7]);
        keys(&mut state, "p");
        assert_eq!(order(&state), [7, 8, 9]);
        keys(&mut state, "r");
        assert_eq!(order(&state), [9, 7, 8]);
        // While a filter is typed, q is a letter.
        assert_eq!(keys(&mut state, "/fioq"), KeyAction::None);
        assert!(state.rows().is_empty());
        state.on_key(KeyEvent::from(KeyCode::Backspace));
        assert_eq!(keys(&mut state, "\no"), KeyAction::None);
        assert_eq!((order(&state), keys(&mut state, "q")), (vec![9, 7], KeyAction::Quit));
    }

    #[test]
    fn a_selection_follows_its_process() {
        let mut state = state();
        assert_eq!(keys(&mut state, "t"), KeyAction::Trace(8));
        state.on_key(KeyEvent::from(KeyCode::Down));
        assert_eq!(keys(&mut state, "t"), KeyAction::Trace(9));
        keys(&mut state, "p");
        assert_eq!((state.selected(), keys(&mut state, "\n")), (Some(2), KeyAction::Trace(9)));
        for _ in 0..5 {
            state.on_key(KeyEvent::from(KeyCode::Down));
        }
        assert_eq!(state.selected(), Some(2));
        assert_eq!(TopState::default().selected(), None);
    }

    #[test]
    fn a_sample_is_that_of_the_selected_process() {
        let mut state = state();
        assert_eq!(state.sampled_pid(), None);
        keys(&mut state, "s");
        assert_eq!(state.sampled_pid(), Some(8));
        state.set_sample(Some((7, Ok(Default::default()))));
        assert!(state.sample().is_none());
        state.set_sample(Some((8, Ok(Default::default()))));
        state.set_sample(None);
        assert!(state.sample().is_some());
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.on_key(ctrl_c), KeyAction::Quit);
    }
}
