//! Members of one shard: headers that are cut or damaged, fields and keys that come twice, payloads without bytes.

use super::payloads::Waiting;
use super::{FindingKind, Run};
use crate::shard::group::split_name;
use crate::shard::{Grouper, Limits, Member, WalkEnd, Walker, walk_object};
use crate::source::inventory::Inventory;
use crate::source::shards;
use forebay_store::ObjectMeta;
use xxhash_rust::xxh3::xxh3_64;

impl Run<'_> {
    pub(super) async fn shard(
        &mut self,
        number: u32,
        object: &ObjectMeta,
        inventory: &Inventory,
        waiting: &mut Vec<Waiting>,
    ) {
        let url = self.store.url(&object.key);
        let mut members = Vec::new();
        let walked = match shards::expanded(self.store.as_ref(), object).await {
            Ok(object) => {
                let mut walker = Walker::new(object.size, Limits::default());
                let visit = |member| {
                    members.push(member);
                    Ok(())
                };
                walk_object(
                    self.store.as_ref(),
                    &object.key,
                    &mut walker,
                    shards::header_reads(self.store.as_ref()),
                    visit,
                )
                .await
            }
            Err(error) => Err(error),
        };
        self.members(number, &url, &members, inventory);
        match walked {
            Ok(WalkEnd { marked: false, .. }) => {
                let why = "no end blocks: complete, or cut exactly between two members".to_string();
                self.add(FindingKind::NoEndMark, &url, None, None, why);
            }
            Ok(WalkEnd { trailing: Some(at), .. }) => {
                let why = "bytes follow the end of the archive, where no reader looks".to_string();
                self.add(FindingKind::TrailingBytes, &url, None, Some(at), why);
            }
            Ok(_) => {}
            Err(error) => {
                let (member, offset) = (error.facts().key.clone(), error.facts().offset);
                self.add(FindingKind::BadShard, &url, member.as_deref(), offset, error.report());
            }
        }
        if self.verify.check.is_some() {
            waiting.extend(members.into_iter().filter(|member| member.length > 0).filter_map(|member| {
                let field = split_name(&member.name)?.1.to_lowercase();
                let range = member.offset..member.offset + member.length;
                Some(Waiting {
                    object: url.clone(),
                    key: object.key.clone(),
                    member: Some(member),
                    field,
                    range,
                    whole: false,
                })
            }));
        }
    }

    /// Samples, empty payloads and keys used twice.
    fn members(&mut self, number: u32, url: &str, members: &[Member], inventory: &Inventory) {
        let mut grouper = Grouper::default();
        let mut samples = Vec::new();
        for member in members {
            match grouper.add(member) {
                Ok(sample) => samples.extend(sample),
                Err(error) => {
                    self.add(
                        FindingKind::DuplicateField,
                        url,
                        Some(&member.name),
                        Some(member.header),
                        error.report(),
                    );
                }
            }
            self.report.bytes += member.length;
            if member.length == 0 && split_name(&member.name).is_some() {
                let why = "the payload is empty".to_string();
                self.add(FindingKind::EmptyPayload, url, Some(&member.name), Some(member.header), why);
            }
        }
        samples.extend(grouper.finish());
        self.report.samples += samples.len() as u64;
        for sample in samples {
            if let Some(first) = self.seen.insert(xxh3_64(sample.key.as_bytes()), number) {
                let first = inventory.objects.get(first as usize).map(|object| self.store.url(&object.key));
                let why = match first {
                    Some(first) if first != url => format!("key `{}` is in `{first}` too", sample.key),
                    _ => format!(
                        "key `{}` names an earlier sample of this shard too: members apart are two samples",
                        sample.key
                    ),
                };
                self.add(FindingKind::DuplicateKey, url, Some(&sample.key), Some(sample.header), why);
            }
        }
    }
}
