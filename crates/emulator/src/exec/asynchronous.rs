//! Asynchronous copies: groups and waits. (PTX ISA, "Asynchronous copy".)

use super::{
    block::State,
    clocks::{ENGINE, Kind, Moment},
    lanes::{collect, lanes},
    warp::Warp,
};

impl State<'_> {
    /// `cp.async.commit_group`: makes a group of the copies that these lanes began since their last one.
    #[cold]
    pub fn commit(&mut self, warp: &mut Warp, active: u32) {
        for lane in lanes(active) {
            warp.groups[lane] = warp.groups[lane].saturating_add(1);
        }
    }

    /// Waits for all groups but the last `groups`. `None` waits for all copies, committed or not.
    #[cold]
    pub fn wait(&mut self, warp: &mut Warp, groups: Option<u32>, active: u32) {
        let Some(checks) = &mut self.checks else { return };
        let committed = warp.groups;
        let time = checks.clocks.time[warp.index as usize];
        if !warp.copies.is_empty() {
            // What comes after the wait has a later time, so that it differs from what comes before.
            checks.clocks.time[warp.index as usize] += 1;
            checks.log.interrupt(warp.index as usize);
        }
        for copy in &mut warp.copies {
            let ends = |lane: usize| match groups {
                None => true,
                Some(groups) => copy.group[lane].saturating_add(groups) < committed[lane],
            };
            let done = collect(ends) & copy.lanes & active;
            copy.lanes &= !done;
            if done != 0 {
                checks.log.settle(&copy.records, time + 1);
            }
            for lane in lanes(done) {
                let moment = Moment {
                    time,
                    at: copy.at,
                    serial: copy.serial,
                    warp: warp.index as u8,
                    lane: lane as u8,
                    kind: Kind::Write,
                    size: copy.bytes.min(8) as u8,
                };
                let to = copy.to[lane] as usize;
                if checks.shadow.flies(to, copy.serial) {
                    checks.shadow.settle(moment, to, copy.bytes as usize);
                } else {
                    // Another thread has waited for it at an mbarrier.
                    let clocks = &mut checks.clocks;
                    clocks.known[warp.index as usize][ENGINE] = clocks.time[ENGINE];
                }
            }
        }
        warp.copies.retain(|copy| copy.lanes != 0);
    }
}
