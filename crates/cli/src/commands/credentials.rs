//! `forebay credentials`: makes a token and a certificate for the processes of a service.

use super::{Context, Done};
use crate::args::MakeCredentialsArgs;
use forebay_core::Result;
use forebay_net::{MEMBER_NAME, MadeCredentials};
use serde_json::json;

pub(super) fn run(args: &MakeCredentialsArgs, context: &Context) -> Result<Done> {
    let made = MadeCredentials::new(&args.names, args.days)?;
    made.write(&args.folder)?;
    let folder = args.folder.display().to_string();
    let files = made.files().map(|(name, _)| name);
    context.report.line(format_args!("{folder}: {}", files.join(", ")));
    context.report.note(format_args!("good for {} days; whoever reads them takes part", args.days));
    Ok(Done::with(json!({ "folder": folder, "files": files, "days": args.days, "tls_name": MEMBER_NAME })))
}
