"""The columns of VTune's tables in each version of the schema, as docs/formats/vtune.md describes them."""

from __future__ import annotations

INSTANCE = "start_tsc end_tsc count attr __bucket_idx"
AGG_BAND = "start_tsc end_tsc data_start_rowid data_end_rowid metadata_start_rowid metadata_end_rowid __bucket_idx"
AGG_DATA = "duration count attr"

# Columns of a table by the first age that has them so; a table is there from its first age on.
COLUMNS: dict[str, dict[str, str]] = {
    "_schema_instance_tables": {"2013": "name type __hash", "2020": "name type __hash band_table"},
    "_schema_refs": {"2013": "path ref __hash"},
    "EventDataTempTable": {"2013": "apiId classId cs parameters startTsc endTsc __bucket_idx"},
    "eventCreateTempTable": {"2013": "type id timestamp taskKey __bucket_idx"},
    "tempPauseResumeTimestampsTable": {"2013": "timestamp type __bucket_idx"},
    "dd_context_value": {"2013": "key value type __hash __explicit_rowid__"},
    "dd_marker_info": {
        "2013": "hw_node utc_time sys_tsc sys_frequency cpu_tsc cpu_frequency",
        "2024": "hw_node utc_time sys_tsc sys_frequency cpu_tsc cpu_frequency __hash",
    },
    "dd_hw_node": {"2013": "machine_name arch os_info", "2022": "machine_name arch os_info context_count"},
    "dd_package": {"2013": "name hw_node freq_hz brand_name"},
    "dd_os_info": {"2013": "name version detailed_name kernel_release"},
    "dd_process": {
        "2013": "match_id hw_node name arch start_tsc end_tsc pid path",
        "2020": "match_id hw_node name arch start_tsc end_tsc pid path attributes vm_info",
    },
    "dd_thread": {
        "2013": "thread_id process match_id user_name name ignored",
        "2020": "thread_id process match_id user_name name is_master affinity ignored",
        "2024": "thread_id process match_id user_name name is_master affinity",
    },
    "dd_band": {
        "2013": "start_tsc end_tsc ignored dd_thread",
        "2020": "start_tsc end_tsc ignored dd_thread dd_package dd_hw_context",
    },
    "dd_domain": {"2013": "name __hash __explicit_rowid__"},
    "dd_task": {
        "2013": "parameter end_cs type region_inst",
        "2020": "parameter end_cs type region_inst duration bin group_key",
    },
    "dd_task_type": {"2013": "name domain __hash"},
    "dd_frame": {"2013": "instance fps type domain"},
    "dd_frame_type": {"2013": "name domain fps_min_value"},
    "dd_region_instance": {"2013": "parameter parent region"},
    "dd_region": {"2013": "type src_loc domain process duration", "2020": "type src_loc domain process duration bin"},
    "dd_region_type": {"2013": "name domain", "2015": "type_name domain min_value attributes"},
    "dd_region_type_name": {"2015": "name"},
    "dd_marker": {"2013": "parameter type"},
    "dd_marker_type": {"2013": "name domain"},
    "dd_counter": {"2013": "cs type"},
    "dd_counter_type": {"2013": "name domain", "2024": "name domain metadata"},
    "dd_cpu_usage": {"2013": "value utilization __explicit_rowid__"},
    "dd_paused_range": {"2013": "start_tsc end_tsc"},
    "dd_sample": {
        "2013": "event_type cpu ip callsite uncore_event_type",
        "2020": "event_type cpu ip callsite uncore_event_type cpu_mode",
    },
    "dd_uncore_event_type": {
        "2013": "name short_name events_per_sample umask cmask inv load_count mux_multiplier __hash",
        "2015": "name short_name events_per_sample umask cmask inv load_count mux_multiplier __hash unit",
    },
    "dd_uncore_event_unit": {"2015": "name __hash"},
    "dd_sample_event_type": {"2013": "name events_per_sample", "2020": "name core_type events_per_sample"},
    "dd_sample_event_name": {"2020": "value"},
    "dd_hw_context": {"2013": "name core"},
    "dd_callsite": {"2013": "parent_raw code_loc parent type"},
    "dd_code_location": {"2013": "rva mod_seg func_range"},
    "dd_module_segment": {"2013": "mod_file seg_type"},
    "dd_module_file": {"2013": "bin_name bin_path"},
    "dd_function_range": {"2013": "start_rva func_inst"},
    "dd_function_instance": {"2013": "start_rva function type"},
    "dd_function": {"2013": "name full_name"},
    "dd_wait": {"2013": "sync_object signal_cs wait_cs thread_state __hash"},
    "dd_sync_object": {"2013": "type create_cs close_cs user_name name constant_id __hash __explicit_rowid__"},
    "dd_sync_object_type": {"2013": "name __hash __explicit_rowid__"},
    "dd_thread_state": {"2013": "name __hash __explicit_rowid__"},
    "wait_data": {"2013": "start_tsc multi_band_start_tsc end_tsc count attr multi_band_index __bucket_idx"},
    "task_data": {"2013": INSTANCE},
    "frame_data": {"2013": INSTANCE},
    "region_data": {"2013": INSTANCE},
    "marker_global_data": {"2013": INSTANCE},
    "cpu_usage_data": {"2013": INSTANCE},
    "global_elapsed_time_data": {"2015": INSTANCE},
    "elapsed_time_data": {"2015": INSTANCE},
    "sched_data": {"2013": INSTANCE},
    "cpu_data_agg_band": {"2013": AGG_BAND},
    "cpu_data_agg_data": {"2013": AGG_DATA},
    "counter_data_agg_band": {"2013": AGG_BAND},
    "counter_data_agg_data": {"2013": AGG_DATA},
}
VIEW = """CREATE VIEW {0} AS SELECT b.start_tsc, b.end_tsc, d.duration, d.count, d.attr, b.__bucket_idx
FROM {0}_agg_band b, {0}_agg_data d WHERE d.rowid BETWEEN b.data_start_rowid AND b.data_end_rowid"""
VIEWS = ("cpu_data", "counter_data")
