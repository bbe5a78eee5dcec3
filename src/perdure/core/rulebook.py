"""How strong each rule is, and the test that holds it.

Job: what ``perdure explain RULE`` and docs/protocol.md say beyond the sentence in ``rules``.
Invariants: every rule id has a strength and a test that exists (tests/tidy/test_rulebook.py); a
number that comes from one observation is never more than a reference policy. Never imported where
something is decided: a rule holds by its code, not by its line here.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Strength = Literal["invariant", "rule", "reference policy", "heuristic"]

STRENGTHS: Final[Mapping[Strength, str]] = {
    "invariant": "the backbone, or an assumption it rests on; without it nothing else holds",
    "rule": "required; follows from the invariants and from what went wrong elsewhere",
    "reference policy": "the shape is required, its numbers are defaults that a task may change",
    "heuristic": "advice that is pointed out and never refused",
}

_POLICIES: Final = frozenset(
    {"FSN-3", "RT-3", "PD-H1", "PD-H3", "DP-1", "GE-3", "JB-5", "CK-2", "WK-1"}
)  # fmt: skip
_HEURISTICS: Final = frozenset({"DP-2", "DP-3", "ME-2", "PD-C4", "C-UNIT"})


class Held(NamedTuple):
    """A rule as the rulebook has it."""

    strength: Strength
    test: str
    """``tests/FILE::TEST``."""


def held(rule: str) -> Held:
    """The strength of a rule id of ``rules.rule_ids``, and the test that holds it."""
    return Held(strength_of(rule), f"tests/{HELD_BY[rule]}")


def strength_of(rule: str) -> Strength:
    """How strong a rule is."""
    if rule.startswith(("AX-", "INV-")):
        return "invariant"
    if rule in _POLICIES:
        return "reference policy"
    return "heuristic" if rule in _HEURISTICS else "rule"


_TESTS: Final[Mapping[str, Mapping[str, str]]] = {
    "conformance/test_archive.py": {
        "FST-3": "test_fst_3_one_commit_holds_audit_proposals_hand_off_and_end",
        "MB-2": "test_mb_2_what_failed_and_what_came_through_is_proposed_with_its_evidence",
    },
    "conformance/test_c_batch.py": {
        "UL-1": "test_heartbeats_follow_the_ledger",
    },
    "conformance/test_c_s3.py": {
        "C-S3": "test_an_attempt_whose_process_died_is_held_at_recovery",
    },
    "conformance/test_contained_failures.py": {
        "INV-8": "test_a_mess_in_one_scope_fails_that_node_and_no_other",
    },
    "conformance/test_contract_job.py": {
        "JB-1": "test_one_write_and_one_fdatasync_come_before_the_item_counts",
        "JB-2": "test_a_bad_state_is_kept_aside_and_rebuilt_from_the_log",
        "JB-3": "test_a_second_process_is_refused_with_the_holders_pid_and_a_"
        "dead_one_is_no_obstacle",
        "JB-4": "test_a_payload_with_a_reserved_key_raises_an_error_that_is_a_value_error",
        "JB-5": "test_retries_are_bounded_by_attempts_and_exhausted_items_stay_listed",
        "JB-6": "test_the_summary_says_what_a_resuming_agent_needs_and_nothing_forged",
        "JB-7": "test_a_bad_line_in_the_middle_is_reported_with_its_number_an"
        "d_never_dropped_silently",
    },
    "conformance/test_contract_library.py": {
        "C-ART": "test_a_new_directory_becomes_a_workspace",
        "C-TX": "test_a_batch_is_one_commit_or_nothing",
        "D2": "test_another_id_is_refused",
        "IN-1": "test_every_refusal_has_a_code_a_message_and_a_fix",
    },
    "conformance/test_contracts.py": {
        "C-CONTRACT": "test_c_contract_more_than_fits_is_refused_before_anything_is_sent",
        "INV-7": "test_c_contract_more_than_fits_is_refused_before_anything_is_sent",
        "PD-C1": "test_pd_c1_a_contract_holds_all_that_its_executor_needs",
        "PD-C2": "test_pd_c2_a_worker_gets_its_units_by_name",
        "PD-C3": "test_pd_c3_units_that_are_not_the_plan_are_not_sent",
    },
    "conformance/test_dispatch_modes.py": {
        "PD-H2": "test_pd_h2_two_failures_of_the_environment_in_a_row_halt_dispatch",
        "RT-1": "test_pd_h3_a_halt_ends_by_a_probe_a_small_batch_and_its_landing",
    },
    "conformance/test_effects.py": {
        "C-S1": "test_c_s1_what_may_be_changed_is_copied_before_the_start",
    },
    "conformance/test_escalations.py": {
        "AD-1": "test_nothing_happens_however_long_nobody_answers",
        "AD-2": "test_three_attempts_that_fail_are_put_to_a_person_with_what_the_disk_held",
        "GE-4": "test_acceptance_that_keeps_failing_is_proposed_to_the_sponsor",
    },
    "conformance/test_field_incidents.py": {
        "R1": "test_2_a_torn_registry_is_rebuilt_to_the_same_bytes",
        "IN-3": "test_6_illegal_moves_are_refused_and_leave_no_trace",
        "TG-2": "test_2_a_torn_registry_is_rebuilt_to_the_same_bytes",
        "lease": "test_7_one_coordinator_at_a_time",
    },
    "conformance/test_fsm_n.py": {
        "N01": "test_n01_ready_takes_every_dep_done_and_lists_them",
        "N02": "test_n02_running_takes_a_contract_that_is_on_disk_and_names_one_executor",
        "N03": "test_n03_a_claim_carries_its_report",
        "N04": "test_n04_a_failed_attempt_carries_class_signature_and_the_next_number",
        "N05": "test_n05_blocked_carries_reason_and_wake_condition",
        "N06": "test_n06_done_carries_verifier_checks_and_artifacts",
        "N07": "test_n07_a_failed_check_can_be_redone_and_frees_the_path",
        "N08": "test_n08_the_third_failed_verification_quarantines",
        "N09": "test_n09_a_blocked_node_wakes_on_evidence",
        "N10": "test_n10_cancelling_what_waits_names_the_authority",
        "N11": "test_n11_a_retry_takes_a_new_contract",
        "N12": "test_n12_replanning_cites_an_amendment_made_since",
        "N13": "test_n13_an_obsolete_node_names_its_replacement",
        "N14": "test_n14_successors_are_new_nodes_that_point_back_and_take_the_dependents",
        "N15": "test_n15_the_authority_cancels_anything_that_is_not_over",
        "RC1": "test_rc1_done_without_its_files_is_ready_again_in_recovery_only",
        "AR-1": "test_ar_1_a_missing_file_is_not_registered_and_a_present_one_is_read_back",
        "AR-2": "test_ar_2_a_superseded_artifact_keeps_bytes_and_entry",
        "AR-3": "test_ar_3_a_registered_path_is_frozen",
        "AX-3": "test_pd_j1_no_disk_no_done",
        "C-NOREWRITE": "test_j_1_the_journal_only_grows",
        "FR-1": "test_fr_1_work_starts_from_the_frontier_and_a_start_out_of_order_is_journaled",
        "FSN-1": "test_fsn_1_nothing_else_moves_a_node",
        "FSN-2": "test_fsn_2_one_executor_has_the_node_and_is_named",
        "FSN-3": "test_fsn_3_a_fourth_identical_try_is_refused_and_a_question_is_open",
        "FSN-4": "test_fsn_4_a_claim_changes_nothing_else_and_n06_alone_wakes_dependents",
        "FST-1": "test_fst_1_after_a_stop_the_way_into_executing_leads_through_recovering",
        "IN-2": "test_names_that_do_not_exist_are_refused_with_what_was_meant",
        "INV-4": "test_j_1_the_journal_only_grows",
        "J-1": "test_j_1_damage_in_history_is_refused_with_line_and_byte",
        "J-3": "test_j_1_the_journal_only_grows",
        "J-4": "test_j_4_the_sequence_comes_from_the_file_whoever_wrote",
        "PD-J1": "test_pd_j1_no_disk_no_done",
        "PL-4": "test_pl_4_a_link_to_what_the_runtime_keeps_is_no_artifact",
        "RC-2": "test_rc1_done_without_its_files_is_ready_again_in_recovery_only",
        "RT-2": "test_fsn_3_strikes_are_kept_for_every_method",
        "TG-1": "test_tg_1_a_spec_changes_only_by_an_amendment_and_not_at_work",
        "TG-3": "test_tg_3_an_id_is_never_used_again",
        "VR-1": "test_vr_1_a_verdict_short_of_the_minimum_is_not_a_pass",
    },
    "conformance/test_fsm_t.py": {
        "T05": "test_t05_and_t06_opening_a_suspended_task_resumes_it",
        "T06": "test_t05_and_t06_opening_a_suspended_task_resumes_it",
        "T09": "test_t09_a_finished_task_whose_file_is_gone_leaves_its_final_audit",
        "FST-2": "test_t09_a_finished_task_whose_file_is_gone_leaves_its_final_audit",
    },
    "conformance/test_gates.py": {
        "GA-1": "test_ga_1_nothing_starts_through_a_gate_that_is_not_approved",
        "GA-2": "test_ga_2_time_never_approves",
        "GA-3": "test_ga_3_an_approval_is_for_one_content",
        "H2": "test_h2_a_question_is_journaled_in_front_of_the_move_that_waits_for_it",
        "H3": "test_qa_1_an_unanswered_question_holds_what_depends_on_it_alone",
        "QA-1": "test_qa_1_an_unanswered_question_holds_what_depends_on_it_alone",
        "VR-3": "test_vr_3_judgement_names_judge_rubric_rounds_and_default",
    },
    "conformance/test_goal_evolution.py": {
        "AX-5": "test_a_policy_is_changed_by_decision_with_reason_and_window",
        "GE-1": "test_ge_1_the_change_says_old_new_why_and_all_that_it_touches",
        "GE-2": "test_ge_2_what_holds_stays_done_and_what_does_not_gets_a_corrective_node",
        "GE-3": "test_ge_3_too_many_changes_within_a_window_are_put_to_the_sponsor",
    },
    "conformance/test_inbox.py": {
        "PL-1": "test_what_is_written_into_the_page_is_never_read",
    },
    "conformance/test_join.py": {
        "PD-C4": "test_units_before_a_death_stay_and_the_rest_goes_out_with_a_skip_list",
        "UL-2": "test_of_two_former_workers_with_one_unit_the_lower_id_counts"
        "_and_the_other_is_told",
    },
    "conformance/test_memory.py": {
        "MB-1": "test_mb_1_progress_of_the_task_belongs_in_its_journal",
        "ME-1": "test_me_1_an_entry_is_never_edited_but_superseded",
        "ME-2": "test_me_2_an_order_is_pointed_out_and_not_refused",
        "ME-3": "test_me_3_without_evidence_it_is_a_draft_and_says_so",
        "ME-4": "test_me_4_what_is_said_already_is_not_said_again",
    },
    "conformance/test_nesting.py": {
        "AP-N4": "test_ap_n4_a_procedure_above_is_not_run_again",
        "DP-1": "test_dp_1_the_limit_counts_the_root",
        "DP-3": "test_fsn_1_no_phase_is_passed_over_and_few_lead_back",
        "FE-1": "test_fe_1_an_instance_that_cannot_be_opened_says_why",
        "FE-2": "test_fe_2_one_that_was_turned_down_or_failed_is_called_anew",
        "FST-4": "test_nc_2_nothing_of_a_child_is_here_before_its_end_was_read",
        "IO-2": "test_io_2_what_a_child_has_registered_and_not_verified_does_not_count",
        "IO-3": "test_qa_1_what_a_child_asks_is_on_record_together_with_its_node_that_waits",
        "NC-1": "test_nc_1_an_instance_that_was_interrupted_goes_on",
        "NC-2": "test_nc_2_nothing_of_a_child_is_here_before_its_end_was_read",
        "QA-2": "test_qa_2_an_answer_is_taken_in_by_the_child_once",
        "SC-1": "test_sc_1_side_effects_above_those_of_the_node_are_refused",
        "SC-3": "test_sc_3_an_instance_runs_the_copy_that_it_was_called_with",
    },
    "conformance/test_observations.py": {
        "OB-1": "test_completion_is_recorded_whatever_the_node_is",
        "OB-2": "test_a_pending_claim_says_whether_the_provider_has_spoken",
        "OB-3": "test_a_block_needs_its_parts_also_from_a_message",
        "OB-4": "test_reply_c_with_a_node_claims_as_an_observation_does",
    },
    "conformance/test_parallel_dispatch.py": {
        "PD-H1": "test_pd_h1_the_mode_changes_in_the_commit_of_the_end_that_causes_it",
        "PD-H3": "test_pd_h3_a_halt_is_left_by_a_probe_that_survives",
        "RT-3": "test_rt_3_silence_is_suspected_once_and_ends_nothing",
    },
    "conformance/test_provenance.py": {
        "INV-9": "test_inv_9_a_result_leads_back_to_who_planned_started_and_verified_it",
    },
    "conformance/test_roles.py": {
        "AU-1": "test_au_1_a_role_may_do_what_it_is_given_and_nothing_else",
        "AU-2": "test_au_2_an_executor_acts_on_the_node_whose_contract_is_its_own",
        "H4": "test_h4_who_rules_on_which_question",
    },
    "conformance/test_steering.py": {
        "R5": "test_fr_2_whoever_starts_next_propagates_first",
        "FR-2": "test_fr_2_the_frontier_is_that_of_the_steered_graph_at_the_next_start",
        "H1": "test_s1_words_are_durable_verbatim_before_anything_acts_on_them",
        "S1": "test_s1_words_are_durable_verbatim_before_anything_acts_on_them",
        "S2": "test_s2_the_reading_is_on_record_before_its_effects",
        "S3": "test_s3_contracts_in_flight_are_recalled_and_specs_amended",
        "S4": "test_s4_it_is_acknowledged_with_the_log_the_reading_and_what_was_done_where",
        "ST-1": "test_st_1_in_doubt_the_stronger_reading_holds_and_is_put_to_the_sponsor",
        "ST-2": "test_st_2_restated_words_are_tagged_and_act_only_once",
        "ST-3": "test_st_3_done_work_stands_and_a_corrective_node_follows",
    },
    "conformance/test_task_rows.py": {
        "T01": "test_t01_creation_leads_to_decomposing",
        "T02": "test_t02_executing_takes_something_to_start",
        "T03": "test_t03_work_that_was_interrupted_leads_through_recovering",
        "T04": "test_t04_no_pause_while_work_is_under_way",
        "T07": "test_t07_the_final_audit_waits_for_every_node",
        "T08": "test_t08_work_that_was_missed_is_planned_at_any_time",
        "T10": "test_t10_nothing_that_is_open_gets_past_an_audit",
        "T11": "test_t11_recovery_of_a_task_without_nodes_goes_on_planning",
        "T12": "test_t12_recovery_of_a_task_with_nothing_open_leads_to_its_final_audit",
    },
    "conformance/test_views.py": {
        "PL-2": "test_pl_2_a_document_is_on_record_with_purpose_and_time",
    },
    "conformance/test_tier_2.py": {
        "C-S2": "test_c_s2_an_effect_that_can_be_repeated_is_done_only_with_its_receipt",
        "WK-1": "test_wk_1_the_sponsor_is_asked_once_about_a_file_that_is_not_as_registered",
    },
    "conformance/test_vr.py": {
        "AU-3": "test_vr_2_what_cannot_be_hashed_is_suspect_unless_the_kernel_held_the_auditor",
        "INV-6": "test_inv_6_the_producer_does_not_audit_its_own_work",
        "VR-0": "test_vr_0_a_verdict_records_the_independence_that_was_seen",
        "VR-2": "test_vr_2_whatever_changes_under_an_audit_makes_it_a_violation",
    },
    "crash/test_artifact_sync.py": {
        "C-VERIFY": "test_bytes_of_a_done_node_survive_although_their_first_sync_failed",
    },
    "crash/test_batch_steps.py": {
        "C-UNIT": "test_death_at_any_call_of_a_run_costs_at_most_the_units_at_work",
    },
    "crash/test_failed_io.py": {
        "IO-1": "test_failing_call_acknowledges_nothing_and_a_new_object_goes_on",
    },
    "crash/test_kill_every_step.py": {
        "AX-1": "test_death_at_a_call_loses_nothing_and_leaves_nothing_to_clean_up",
        "INV-1": "test_death_at_a_call_loses_nothing_and_leaves_nothing_to_clean_up",
    },
    "crash/test_mirror_steps.py": {
        "J-2": "test_acknowledged_events_survive_a_power_cut_in_each_of_the_two",
    },
    "crash/test_power_loss.py": {
        "R2": "test_power_lost_after_any_step_takes_nothing_acknowledged",
        "AX-4": "test_death_at_any_step_of_a_recovery_from_any_death_is_recovered_from",
        "FSN-5": "test_power_lost_after_any_step_takes_nothing_acknowledged",
        "INV-3": "test_a_process_killed_after_any_step_loses_nothing_even_when"
        "_power_fails_after_recovery",
        "INV-5": "test_a_run_whose_processes_keep_dying_comes_to_its_end_with_each_node_done_once",
    },
    "integration/test_confinement.py": {
        "INV-10": "test_a_confined_child_writes_only_where_it_is_granted",
    },
    "integration/test_executors.py": {
        "NS-1": "test_a_command_cannot_write_outside_its_scope",
        "PL-3": "test_a_command_cannot_write_outside_its_scope",
    },
    "integration/test_field_cases.py": {
        "RC-3": "test_f20_memory_to_open_does_not_grow_with_the_journal",
    },
    "integration/test_secrets_field_case.py": {
        "SE-1": "test_f25_a_key_that_a_worker_prints_is_in_no_file_and_in_no_answer",
    },
    "integration/test_nesting.py": {
        "NS-2": "test_an_instance_three_deep_is_one_node_for_each_level",
        "NS-3": "test_an_instance_three_deep_is_one_node_for_each_level",
    },
    "integration/test_transfer.py": {
        "IM-1": "test_import_over_a_fork_names_the_event_at_which_they_part",
        "IM-2": "test_a_bundle_that_does_not_hold_what_it_says_leaves_no_trace",
    },
    "property/test_replay_equals_live.py": {
        "INV-2": "test_over_the_core",
    },
    "unit/control/test_batch.py": {
        "C-TRUTH": "test_a_unit_that_only_a_checkpoint_claims_is_not_done",
        "JB-8": "test_a_finding_without_its_ledger_line_is_read_back_and_marked",
    },
    "unit/core/test_criteria.py": {
        "SC-2": "test_there_is_a_reading_of_every_method",
    },
    "unit/core/test_decide_node.py": {
        "A-4": "test_a_verdict_is_recorded_itemised_with_what_it_rests_on",
        "D4": "test_an_amendment_never_makes_a_cycle",
    },
    "unit/core/test_frontier.py": {
        "DP-2": "test_a_deep_chain_and_a_wide_diamond_are_no_trouble",
    },
    "unit/core/test_projection.py": {
        "CK-1": "test_what_is_rebuilt_from_the_journal_has_the_same_bytes",
        "CK-2": "test_a_checkpoint_stays_a_few_kilobytes",
    },
    "unit/core/test_recovery.py": {
        "R7": "test_the_recovery_note_lists_what_was_found_and_repaired",
        "R4": "test_every_repair_is_a_legal_move",
        "R3": "test_every_combination_has_exactly_one_rule",
        "R0": "test_planning_changes_nothing",
        "AX-2": "test_the_same_journal_and_facts_give_the_same_plan",
        "R6": "test_what_a_state_rests_on_is_missed_when_it_is_not_there",
        "RC-1": "test_planning_changes_nothing",
    },
}  # fmt: skip
"""By file: rule id to the test that holds it."""

HELD_BY: Final[Mapping[str, str]] = {
    rule: f"{file}::{test}" for file, tests in _TESTS.items() for rule, test in tests.items()
}
"""Rule id to its test, below ``tests/``."""
