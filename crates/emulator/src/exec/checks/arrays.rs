//! Finds accesses that leave the shared array from which their address comes.

use crate::{
    exec::{
        access::{Request, Values},
        grid::Grid,
        hooks::Hooks,
        reports::Conflict,
        site::Site,
        warp::Warp,
    },
    fault::{Fault, FaultKind, readable},
    program::{arrays::Array, code::Space},
};

pub struct Arrays;

impl<'g> Hooks<'g> for Arrays {
    fn new(_grid: &'g Grid<'g>) -> Self {
        Arrays
    }

    #[inline(always)]
    fn before(
        &mut self,
        site: &mut Site<'g>,
        _warp: &Warp,
        request: &Request,
        _values: &Values,
    ) -> Result<(), Box<Fault>> {
        if request.space == Space::Shared
            && let Some(array) = site.grid.code.arrays.of(request.at)
        {
            return check(site, request, array);
        }
        Ok(())
    }
}

fn check(site: &mut Site, request: &Request, array: &Array) -> Result<(), Box<Fault>> {
    let (start, end) = (array.range.start, array.range.end);
    let mut mask = 0;
    for (lane, &address) in request.addresses.iter().enumerate() {
        mask |= u32::from(address < start || address.saturating_add(request.bytes.into()) > end) << lane;
    }
    if mask & request.mask == 0 { Ok(()) } else { report(site, request, mask & request.mask, array) }
}

#[cold]
fn report(site: &mut Site, request: &Request, mask: u32, array: &Array) -> Result<(), Box<Fault>> {
    let pair = (Some(Conflict::Race), request.at, request.at);
    if site.reports.is_settled(pair) {
        return Ok(());
    }
    let shown = |array: &Array| readable(&array.name).unwrap_or_else(|| array.name.clone());
    let access = site.access(request, mask);
    let near = match site.grid.code.arrays.at(access.address) {
        Some(other) => {
            format!("this is byte {} of `{}`", access.address - other.range.start, shown(other))
        }
        None => "no array is there".to_owned(),
    };
    let kind = FaultKind::OutOfArray { access, array: shown(array), bytes: array.range.clone(), near };
    let fault = site.fault(request.warp, request.at, mask, kind);
    site.reports.settle(site.grid, pair, fault)
}
