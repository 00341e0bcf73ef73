use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::json;
use uringlet_abi::{Opcode, Sqe};

use super::*;
use crate::request::{FileNames, ProcessStart};

fn request(number: u32, opcode: Opcode, ticks: u64, chain: Option<(u32, u32)>) -> Rc<SubmittedRequest> {
    Rc::new(SubmittedRequest {
        pid: 7,
        tid: 8,
        ring: 0,
        ticks,
        number,
        sqe: Sqe { opcode: opcode as u8, fd: 3, len: 10, user_data: number.into(), ..Sqe::default() },
        paths: FileNames::from([(3, "/a</script>".into())]),
        file: 3,
        chain,
        data: BTreeMap::new(),
    })
}

fn result(ticks: u64, res: i32) -> CqeShown {
    CqeShown {
        ticks,
        tid: 9,
        res,
        flags: 0,
        road: 0,
        is_skipped: false,
        has_more: false,
        is_notification: false,
        is_later: false,
        result: None,
        is_uncertain: false,
        is_unseen: false,
        is_of_kernel: false,
    }
}

fn report() -> HtmlReport {
    let (mut report, clock) = (HtmlReport::default(), TickClock::of_test());
    for event in [
        Event::Process(ProcessStart { pid: 7, name: "program".into() }),
        Event::Completion(request(1, Opcode::Write, 1000, Some((1, 1))), result(1500, 10)),
        Event::Completion(request(2, Opcode::Fsync, 1000, Some((1, 2))), result(4000, -5)),
        Event::Completion(request(3, Opcode::Read, 2000, None), result(2100, 7)),
        Event::Unfinished(request(4, Opcode::Read, 3000, None), "the end"),
    ] {
        report.add(&event, &clock);
    }
    report
}

fn rows(data: &Value, table: usize) -> &Vec<Value> {
    data["tables"][table]["rows"].as_array().unwrap()
}

#[test]
fn tables_have_what_took_longest_first() {
    let data = report().data(&TickClock::of_test());
    assert_eq!([&data["requests"], &data["errors"], &data["bytes"], &data["unfinished"], &data["span_ns"]], [3, 1, 17, 1, 3000]);
    let first = |table: usize| rows(&data, table)[0].clone();
    assert_eq!((&first(0)[0], &first(0)[2]), (&json!("FSYNC"), &json!(1)));
    assert_eq!((&first(1)[0], &first(1)[1], rows(&data, 1).len()), (&json!(3000), &json!(0), 3));
    assert_eq!(first(1)[3], "-5 EIO (I/O error)");
    assert_eq!((&first(2)[0], &first(2)[1]), (&json!("/a</script>"), &json!(3)));
    assert_eq!(first(3), json!([8, 7, 3, 1, 17, 0, 3600]));
    assert_eq!(first(4), json!([3000, 0, "WRITE → FSYNC", 2, 1, "7", 0, 1]));
}

#[test]
fn the_page_holds_everything_and_nothing_ends_its_data() {
    let page = report().page(&TickClock::of_test());
    assert!(!page.contains(DATA) && !page.contains("/a</script>") && page.contains("/a\\u003c/script>"));
    // It works offline.
    assert!(["http:", "https:", "src=", "@import", "url("].iter().all(|outside| !page.contains(outside)));
    let text = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), report().data(&TickClock::of_test()));
}

#[test]
fn an_empty_trace_has_a_page() {
    let data = HtmlReport::default().data(&TickClock::of_test());
    assert_eq!((&data["requests"], data["heat"].as_array().map(Vec::len)), (&json!(0), Some(0)));
}
