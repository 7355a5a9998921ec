use super::*;

fn resolve(text: &str) -> Result<Pipeline> {
    RawPipeline::parse("p.toml".into(), text)?.resolve()
}

fn value(pipeline: &Pipeline, name: &str) -> Value {
    pipeline
        .loader
        .settings()
        .into_iter()
        .find(|setting| setting.name == name)
        .expect("a known setting")
        .value
}

#[test]
fn units_are_read_and_defaults_are_filled_in() {
    let text = "[data]\nurl = 'a.tar'\n[[recipe]]\nfield = 'cls'\ndecode = 'label'\n
        [loader]\nbatch_size = 8\nmemory = '1GiB'\ntimeout = 0\nmax_errors = 0.5\ndrop_last = true";
    let pipeline = resolve(text).unwrap();
    assert_eq!(value(&pipeline, "batch_size"), 8);
    assert_eq!(value(&pipeline, "memory"), 1u64 << 30);
    assert_eq!(value(&pipeline, "timeout"), "none");
    assert_eq!(value(&pipeline, "max_errors"), 0.5);
    assert_eq!(value(&pipeline, "last_batch"), "drop");
    assert_eq!(value(&pipeline, "inflight"), "auto");
    assert_eq!(pipeline.data.unwrap().spec, ["a.tar"]);
    assert_eq!(pipeline.recipe.unwrap().fields.len(), 1);
}

#[test]
fn all_faults_of_all_parts_are_reported_at_once() {
    let text = "[data]\nkind = 'rar'\n[[recipe]]\nfield = 'jpg'\ndecode = 'image'\nops = [{op = 'resise', size = 1}]\n
        [loader]\nbatch_size = 0\nshuffle = 'some'\nmemory = '1 stone'\nbatchsize = 3\n[extra]";
    let error = resolve(text).unwrap_err();
    let message = error.message();
    for fault in [
        "data.kind: `rar`",
        "data.url: it is missing",
        "recipe[0].ops[0]",
        "loader.batch_size: 0",
        "loader.shuffle: \"some\"",
        "loader.memory: ",
        "loader.batchsize: there is no such setting",
        "extra: there is no such part",
    ] {
        assert!(message.contains(fault), "{fault} is not in:\n{message}");
    }
    assert!(message.contains("8 faults"), "{message}");
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (text, why) in [
        ("[loader]\nrank = 2\nworld_size = 2", "ranks count from 0"),
        ("[loader]\nwindow = 5", "in_order = false"),
        ("[loader]\ndrop_last = true\nlast_batch = 'pad'", "leave one of them out"),
        ("[loader]\nsharding = 'file'", "there is no parts"),
        ("[loader]\nparts = 3", "there is no sharding"),
        ("[loader]\nsharding = 'some'\nparts = 3", "file_or_data"),
        ("[loader]\nsize_field = 'txt'", "there is no size_classes"),
        ("[loader]\nsize_classes = 4", "set shuffle to `full`"),
        ("[loader]\nshuffle = true\nsize_classes = [5, 5]", "that rise"),
        ("[loader]\nshuffle = true\nsize_classes = 4\nsharding = 'off'\nparts = 2", "give one of them"),
    ] {
        let error = resolve(text).unwrap_err();
        assert!(error.message().contains(why), "{error}");
    }
}

#[test]
fn sharding_and_size_classes_are_read_as_python_takes_them() {
    let text = "[loader]\nbatch_size = 8\nsharding = 'hint:part'\nparts = 4";
    let pipeline = resolve(text).unwrap();
    assert_eq!((value(&pipeline, "sharding"), value(&pipeline, "parts")), ("hint:part".into(), 4.into()));
    assert_eq!(value(&pipeline, "size_classes"), "none");
    let text = "[loader]\nshuffle = 'full'\nsize_classes = ['1KiB', 4096]\nsize_field = 'txt'";
    let pipeline = resolve(text).unwrap();
    assert_eq!(value(&pipeline, "size_classes"), serde_json::json!([1024, 4096]));
    assert_eq!((value(&pipeline, "size_field"), value(&pipeline, "sharding")), ("txt".into(), "none".into()));
    let again = "[loader]\nsharding = 'none'\nparts = 'none'\nsize_classes = 'none'\nsize_field = 'none'";
    assert_eq!(value(&resolve(again).unwrap(), "size_classes"), "none");
}

#[test]
fn p029_a_mix_and_resampling_are_read_with_all_their_faults() {
    let text =
        "[[data.mix]]\nurl = 'a.tar'\nweight = 3\n[[data.mix]]\nurl = ['b.tar', 'c.tar']\nweight = 0.5\n
        [loader]\nshuffle = true\nepoch_samples = 500";
    let pipeline = resolve(text).unwrap();
    assert_eq!((value(&pipeline, "shuffle"), value(&pipeline, "epoch_samples")), (true.into(), 500.into()));
    let parts = pipeline.data.unwrap().parts;
    assert_eq!(parts.iter().map(|(_, weight)| *weight).collect::<Vec<_>>(), [3.0, 0.5]);
    assert_eq!(parts[1].0.spec, ["b.tar", "c.tar"]);
    let resampled = resolve("[data]\nurl = 'a.tar'\n[loader]\nshuffle = 'resample'").unwrap();
    assert_eq!(value(&resampled, "shuffle"), "resample");
    assert_eq!(value(&resampled, "epoch_samples"), "none");
    let mix = "[[data.mix]]\nurl = 'a.tar'\nweight = 1\n";
    let changing = format!(
        "{mix}[loader]\nshuffle = true\nepoch_samples = 'all'\n[[loader.mix_schedule]]\nepoch = 2\nweights = [0.5]"
    );
    let changing = resolve(&changing).unwrap();
    assert_eq!(value(&changing, "epoch_samples"), "all");
    let change = serde_json::json!([{ "epoch": 2, "position": 0, "weights": [0.5] }]);
    assert_eq!(value(&changing, "mix_schedule"), change);
    for (text, why) in [
        ("[data]\nmix = 3".to_owned(), "not a list of tables"),
        ("[data]\nmix = []".to_owned(), "not a list of tables"),
        ("[data]\nmix = [1]".to_owned(), "1 is not a table"),
        ("[data]\nkind = 'tar'\nmix = [{url = 'a', weight = 1}]".to_owned(), "say it of each dataset"),
        ("[[data.mix]]\nurl = 'a.tar'".to_owned(), "data.mix.weight: it is missing"),
        ("[[data.mix]]\nweight = 1".to_owned(), "data.mix.url: it is missing"),
        ("[[data.mix]]\nurl = 'a'\nweight = -1".to_owned(), "data.mix.weight: -1 is not a number above 0"),
        (mix.to_owned(), "a mix has no stored order"),
        (format!("{mix}[loader]\nshuffle = 'resample'"), "a mix draws without replacement"),
        ("[loader]\nepoch_samples = 5\nshuffle = true".to_owned(), "use a mix, or shuffle `resample`"),
        ("[loader]\nepoch_samples = 0\nshuffle = 'resample'".to_owned(), "loader.epoch_samples: 0"),
        (format!("{mix}[loader]\nshuffle = true\nepoch_samples = 'some'"), "\"first\", \"all\""),
        (format!("{mix}[loader]\nshuffle = true\nmix_schedule = 3"), "3 is not a list of tables"),
        (format!("{mix}[loader]\nshuffle = true\nmix_schedule = [{{epoch = 1}}]"), "missing field `weights`"),
        ("[loader]\nmix_schedule = [{epoch = 1, weights = [1]}]".to_owned(), "which has no weights"),
    ] {
        let error = resolve(&text).unwrap_err();
        assert!(error.message().contains(why), "{why} is not in: {error}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let mut raw = RawPipeline::parse("p.toml".into(), "[loader]\nbatch_size = 8\nseed = 1").unwrap();
    raw.override_loader(Map::from_iter([("batch_size".to_owned(), Value::from(4))]));
    let pipeline = raw.resolve().unwrap();
    assert_eq!((value(&pipeline, "batch_size"), value(&pipeline, "seed")), (4.into(), 1.into()));
}
