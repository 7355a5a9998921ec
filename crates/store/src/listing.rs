//! All keys with a prefix, as fast as the store can tell them.
//!
//! A page of a listing is a request, and the next begins where the last one ended: a million keys are a thousand requests
//! one after the other, which takes minutes over a long link. Where pages can begin behind any key, [`list_all`]
//! asks for several at once; which ones, `forebay_core::listing` decides. The answer is the same as that of
//! [`Store::list`]: every key once, in order.

use crate::{ListPage, ObjectMeta, PagePlace, Store};
use forebay_core::listing::{Listing, PageSeen};
use forebay_core::{ErrorKind, Result};
use futures::StreamExt;
use futures::TryStreamExt;
use futures::stream::FuturesUnordered;

/// Most pages asked for at once.
pub const PAGES_AT_ONCE: usize = 64;

/// Keys between two reports of a listing that goes page after page.
const REPORTED: usize = 1000;

/// Keys of a page from which is learned what keys are made of.
const LEARNED: usize = 8;

/// Every object whose key starts with `prefix`, in the order of their keys. `found` is told how many keys are known so
/// far, now and then.
pub async fn list_all(
    store: &dyn Store,
    prefix: &str,
    found: &(dyn Fn(u64) + Sync),
) -> Result<Vec<ObjectMeta>> {
    if store.lists_pages() {
        match side_by_side(store, prefix, found).await {
            Ok(Some(objects)) => return Ok(objects),
            // Servers that begin elsewhere than asked, or keep another order, may still go on from page to page.
            Ok(None) => tracing::debug!(prefix, "listing goes page after page"),
            Err(error) => return Err(error),
        }
    }
    let mut objects = Vec::new();
    let mut listing = store.list(prefix);
    while let Some(meta) = listing.try_next().await? {
        objects.push(meta);
        if objects.len().is_multiple_of(REPORTED) {
            found(objects.len() as u64);
        }
    }
    Ok(objects)
}

/// `None` when the server does not begin where it is asked to.
async fn side_by_side(
    store: &dyn Store,
    prefix: &str,
    found: &(dyn Fn(u64) + Sync),
) -> Result<Option<Vec<ObjectMeta>>> {
    let mut listing = Listing::new(prefix, PAGES_AT_ONCE);
    let mut parts: Vec<Gathered> = Vec::new();
    let mut pages = FuturesUnordered::new();
    let mut count = 0;
    loop {
        while let Some(number) = listing.ask() {
            if parts.len() <= number {
                parts.resize_with(number + 1, Gathered::default);
            }
            let start = || PagePlace { after: listing.part(number).start().to_owned(), tokens: Vec::new() };
            let place = parts[number].next.take().unwrap_or_else(start);
            pages.push(async move {
                let page = store.list_page(prefix, &place).await;
                (number, place.after, page)
            });
        }
        let Some((number, after, page)) = pages.next().await else { break };
        let page = match page {
            Err(error) if error.kind() == ErrorKind::Unsupported && listing.is_cut() => return Ok(None),
            page => page?,
        };
        if page.objects.first().is_some_and(|first| first.key <= after) {
            return Ok(None);
        }
        listing.answered(number, seen(&page));
        for meta in page.objects.iter().step_by((page.objects.len() / LEARNED).max(1)) {
            listing.learn(&meta.key);
        }
        let part = listing.part(number);
        let gathered = &mut parts[number];
        gathered.next = page.next;
        let before = gathered.objects.len();
        gathered.objects.extend(page.objects.into_iter().take_while(|meta| part.holds(&meta.key)));
        count += (gathered.objects.len() - before) as u64;
        found(count);
    }
    let mut objects = Vec::with_capacity(count as usize);
    for number in listing.order() {
        objects.append(&mut parts[number].objects);
    }
    Ok(objects.is_sorted_by(|a, b| a.key < b.key).then_some(objects))
}

/// What was gathered of a part.
#[derive(Default)]
struct Gathered {
    objects: Vec<ObjectMeta>,
    next: Option<PagePlace>,
}

fn seen(page: &ListPage) -> PageSeen<'_> {
    let last = page.last.as_deref().or(page.objects.last().map(|meta| meta.key.as_str()));
    PageSeen {
        first: page.objects.first().map(|meta| meta.key.as_str()).or(last),
        last,
        keys: page.objects.len(),
        has_more: page.next.is_some(),
    }
}
