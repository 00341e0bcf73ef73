//! The page of `uringlet trace --html` in a browser, without a network: its tables are filled, they
//! sort, and its map is drawn.

use super::program_cases::ProgramCases;
use anyhow::{Context, ensure};
use std::fs;

/// Clicks on a head and a button, and writes what is there then into the page's title.
const CLICK: &str = "<script>
addEventListener('load', () => {
  const tables = [...document.querySelectorAll('table')];
  const head = [...tables[1].querySelectorAll('th')].find(cell => cell.textContent === 'took');
  const first = () => tables[1].querySelector('td').textContent, slowest = first();
  head.click(); head.click();
  const sorted = head.getAttribute('aria-sort') === 'ascending' && first() !== slowest;
  const map = document.getElementById('map'), pixels = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
  document.getElementById('opcodes').lastElementChild.click();
  const drawn = pixels.some((value, at) => at % 4 === 3 && value > 0);
  document.title = `tables ${tables.length} rows ${tables.map(table => table.rows.length - 1)} sorted ${sorted} drawn ${drawn}`;
});
</script></body>";

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let uringlet = cases.uringlet().context("there is nothing to trace on the kernel's own ring")?.to_string_lossy().into_owned();
    let dir = cases.dir().to_string_lossy().into_owned();
    let [page, picture, file] = ["page.html", "page.png", "fio.file"].map(|name| format!("{dir}/{name}"));
    let traced = format!(
        "{uringlet} trace -c -o {dir}/summary --html {page} -- fio --name=x --ioengine=io_uring --filename={file} --size=16m --bs=4k \
         --rw=randrw --iodepth=16 --direct=0 --fsync=64"
    );
    cases.case("a page is written", |cases| {
        cases.run_outside(&traced.split_whitespace().collect::<Vec<_>>())?.ok()?;
        ensure!(fs::metadata(&page)?.len() > 10_000, "the page is too short");
        Ok(())
    });
    let browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,2600"];
    let profile = format!("--user-data-dir={dir}/profile");
    cases.case("a browser shows it", |cases| {
        let clicking = format!("{dir}/clicking.html");
        fs::write(&clicking, fs::read_to_string(&page)?.replace("</body>", CLICK))?;
        let address = format!("file://{clicking}");
        let shown = [&browser[..], &[profile.as_str(), "--dump-dom", &address]].concat();
        let output = cases.run_outside(&shown)?.ok()?;
        let title = output.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>")).map_or("none", |(title, _)| title);
        ensure!(title.starts_with("tables 4 rows 3,200,1,") && title.ends_with("sorted true drawn true"), "the title is {title}");
        Ok(())
    });
    cases.case("a picture is taken", |cases| {
        let (screenshot, address) = (format!("--screenshot={picture}"), format!("file://{page}"));
        cases.run_outside(&[&browser[..], &[profile.as_str(), &screenshot, &address]].concat())?.ok()?;
        ensure!(fs::metadata(&picture)?.len() > 50_000, "the picture is empty");
        Ok(())
    });
    Ok(())
}
