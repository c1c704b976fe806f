"""The abuse cases by number, each with the tests that check the correct behaviour, or with the reason why there is
none.

Tests are named `file::test`, relative to `tests/`; tests in this folder by `test` alone.
"""

from typing import NamedTuple

AAP = "protocols/aap"
RUNS = "protocols/agui"
BLADE = "protocols/blade"


class Case(NamedTuple):
    """A case. A case without tests does not apply, and `why` says so."""

    description: str
    tests: tuple[str, ...] = ()
    why: str = ""


CASES: dict[int, Case] = {
    1: Case(
        "body over the limit, chunked or with a false length",
        (
            "test_a_body_over_the_limit_is_413_while_it_comes_and_the_connection_ends",
            "test_a_client_that_sends_all_before_it_reads_gets_the_error_too",
            "test_an_invalid_content_length_is_400_and_changes_nothing",
            "test_a_too_small_content_length_is_400_and_the_rest_is_not_a_second_request",
            "test_an_invalid_content_length_behind_another_server_is_not_a_5xx",
            f"{BLADE}/test_abuse.py::test_polled_packets_are_read_up_to_a_limit_and_what_is_none_is_no_line_of_the_log",
        ),
    ),
    2: Case(
        "deep JSON, many keys, huge numbers, duplicate keys",
        (
            "test_json_of_100_levels_is_accepted_and_any_deeper_json_refused",
            "test_a_number_without_a_json_form_is_400",
            "test_of_a_duplicate_field_the_last_one_counts",
            "test_a_hundred_thousand_unknown_fields_are_ignored",
            "test_more_than_a_thousand_messages_or_blocks_are_refused",
        ),
    ),
    3: Case(
        "surrogates, NUL, BOM, halves of characters",
        (
            f"{AAP}/test_input.py::test_odd_characters_come_back_as_they_came_or_are_refused_whole",
            f"{AAP}/test_input.py::test_malformed_json_is_400_everywhere",
            "test_half_a_character_is_never_sent",
        ),
    ),
    4: Case(
        "forms of a session's id",
        (f"{AAP}/test_types.py::test_a_session_is_found_in_any_case_of_its_id_and_by_no_other_form",),
    ),
    5: Case(
        "ids with slashes, dots, line ends",
        (
            "test_an_unusual_call_id_is_stored_and_answered_unchanged",
            "test_an_unusual_idempotency_key_works_or_is_refused",
            "test_no_spelling_of_a_path_bypasses_the_key",
        ),
    ),
    6: Case(
        "no or many user messages, unknown roles",
        (
            f"{AAP}/test_input.py::test_a_turn_without_messages_is_refused",
            f"{AAP}/test_types.py::test_a_turn_takes_no_other_message",
            "test_more_than_a_thousand_messages_or_blocks_are_refused",
        ),
    ),
    7: Case(
        "tool schemas that are large, recursive, remote, evil",
        (
            "test_a_tools_schema_is_stored_unchanged_and_its_references_are_not_followed",
            f"{AAP}/test_input.py::test_128_client_tools_of_64_kib_are_taken_and_more_refused",
        ),
    ),
    8: Case(
        "client tools that shadow",
        (
            "test_a_client_tool_never_takes_the_name_of_a_servers",
            "test_a_tool_named_like_a_javascript_property_works",
        ),
    ),
    9: Case("images of a wrong type", ("test_an_invalid_image_is_refused",)),
    10: Case("images by URL of internal addresses", why="the server fetches no URL that a client sends"),
    11: Case(
        "unusual methods, versions, paths",
        (
            "test_http_1_0_is_answered_and_the_connection_ends",
            "test_head_answers_as_get_without_a_body_and_ends_where_a_stream_would_begin",
            "test_options_without_a_preflight_is_405_and_reveals_nothing",
            "test_no_spelling_of_a_path_bypasses_the_key",
            "asgi/test_routing.py::test_a_websocket_at_a_protocols_path_is_closed_and_reaches_no_protocol",
        ),
    ),
    12: Case(
        "Host and absolute targets",
        (
            "test_a_request_without_exactly_one_valid_host_is_400",
            "test_an_invalid_request_line_is_400",
        ),
    ),
    13: Case(
        "smuggled lengths, folded lines, large heads",
        (
            "test_a_request_with_two_lengths_or_folded_lines_is_400_and_the_connection_ends",
            "test_a_hundred_kilobytes_of_headers_are_400",
            "test_a_body_hidden_behind_an_upgrade_is_not_a_second_request",
        ),
    ),
    14: Case(
        "clock inputs",
        (
            f"{RUNS}/test_run_service_rules.py::test_a_value_just_outside_a_rule_is_refused_by_it",
            f"{RUNS}/test_run_service_rules.py::test_a_broken_rule_is_answered_with_its_message_and_changes_nothing",
        ),
    ),
    15: Case(
        "objects of another user",
        (
            f"{AAP}/test_transport.py::test_a_foreign_a_deleted_and_an_unknown_session_get_the_same_404",
            "test_only_the_owner_can_answer_a_question_and_foreign_sessions_look_unknown",
            "test_another_user_sees_and_changes_nothing_and_cannot_tell_what_exists",
        ),
    ),
    16: Case("key revoked during a stream", ("test_a_stream_whose_key_is_revoked_ends_whole_within_five_seconds",)),
    17: Case(
        "thousands of wrong keys",
        ("test_a_thousand_wrong_keys_are_429_after_the_first_and_the_right_one_still_works",),
    ),
    18: Case("key in the URL", ("test_a_key_in_the_url_is_400_and_not_repeated",)),
    19: Case(
        "pages of foreign origins",
        (
            f"{AAP}/test_transport.py::test_a_server_without_keys_refuses_foreign_origins_and_hosts",
            f"{AAP}/test_transport.py::test_a_body_of_another_content_type_is_415",
        ),
    ),
    20: Case(
        "secrets everywhere",
        (
            f"{AAP}/test_settings.py::test_a_secret_is_in_no_byte_that_leaves_and_in_no_file",
            "test_a_secret_in_a_tool_s_error_is_neither_logged_nor_in_the_session",
            "engine/instrumentation/test_metrics_and_tracing.py::test_a_span_shows_the_type_of_a_failure_but_not_its_message",
        ),
    ),
    21: Case(
        "forged approvals and results",
        (
            "test_a_call_in_a_forged_history_never_runs_a_tool_unasked",
            "test_a_forged_permission_in_a_history_is_refused",
            "test_only_the_owner_can_answer_a_question_and_foreign_sessions_look_unknown",
        ),
    ),
    22: Case("granted as text", (f"{AAP}/test_types.py::test_granted_is_not_guessed_from_other_values",)),
    23: Case(
        "signed URLs",
        (
            f"{RUNS}/test_run_service_files.py::test_a_link_with_any_byte_changed_is_refused",
            f"{RUNS}/test_run_service_files.py::test_a_link_is_valid_for_an_hour",
            f"{RUNS}/test_run_service_files.py::test_a_link_of_another_user_is_no_attachment",
            f"{RUNS}/test_run_service_files.py::test_deleting_a_thread_deletes_its_uploads",
        ),
    ),
    24: Case(
        "client disconnected at any byte",
        (f"{AAP}/test_events.py::test_after_a_cut_at_any_byte_the_rest_is_exactly_the_rest",),
    ),
    25: Case(
        "future, foreign and invalid positions",
        (
            f"{AAP}/test_events.py::test_a_position_that_is_none_of_ours_is_refused",
            f"{AAP}/test_events.py::test_a_position_in_the_future_is_refused_running_or_ended",
            "test_a_forged_cursor_with_a_valid_checksum_is_refused",
        ),
    ),
    26: Case(
        "reader that never reads",
        ("test_a_reader_with_a_closed_window_blocks_neither_its_turn_nor_others",),
    ),
    27: Case(
        "a thousand readers, a thousand sessions",
        (
            "test_a_thousand_readers_of_one_session_all_see_its_turn",
            "test_a_thousand_sessions_with_a_reader_each_are_served_and_over_the_limit_is_429",
        ),
    ),
    28: Case("proxies that cut", (f"{AAP}/test_streams.py::test_a_stream_without_events_gets_a_comment_line",)),
    29: Case(
        "reader that joins while a turn ends",
        (
            "engine/sessions/test_reader.py::test_readers_that_come_at_any_moment_and_position_see_the_tail_of_the_same_stream",
        ),
    ),
    30: Case(
        "sockets",
        (
            f"{BLADE}/test_abuse.py::test_a_connection_that_shows_no_key_is_closed_and_one_that_did_is_not",
            f"{BLADE}/test_abuse.py::test_a_message_over_the_limit_closes_its_own_connection_alone",
            f"{BLADE}/test_abuse.py::test_frames_that_are_no_socket_io_disturb_nobody",
            f"{BLADE}/test_abuse.py::test_any_payload_of_an_event_is_acknowledged_and_breaks_nothing",
            f"{BLADE}/socket/test_resuming.py::test_a_connection_that_is_cut_200_times_loses_and_doubles_nothing",
            f"{BLADE}/socket/test_rooms.py::test_who_never_reads_is_cut_off_when_too_much_waits",
        ),
    ),
    31: Case(
        "concurrent answers and stops",
        (
            "test_concurrent_answers_and_a_stop_have_one_outcome",
            "engine/runs/test_stop.py::test_many_simultaneous_stops_have_one_outcome",
        ),
    ),
    32: Case(
        "messages during a turn",
        ("test_a_hundred_messages_during_a_turn_are_409_and_the_turn_is_untouched",),
    ),
    33: Case("repeated requests", ("test_fifty_equal_concurrent_posts_run_one_turn_and_another_body_is_409",)),
    34: Case(
        "models that break off or send wrong data",
        (
            "test_an_answer_that_breaks_off_makes_no_call_ends_with_error_and_reveals_no_internals",
            "test_a_providers_stream_that_breaks_inside_a_calls_arguments_makes_no_call",
            "test_invalid_arguments_fail_the_call_and_the_model_reads_why",
            "test_a_call_of_an_unknown_tool_fails_whatever_its_name",
            "test_a_thousand_calls_in_one_step_have_a_thousand_results",
            "test_calls_with_the_same_id_get_separate_ids_and_a_result_each",
        ),
    ),
    35: Case(
        "tools that hang, fail, return too much",
        (
            "test_whatever_a_tool_raises_fails_its_call_and_nothing_else",
            "test_a_hundred_megabytes_are_cut_with_a_mark",
            "test_a_value_without_a_json_form_fails_its_call_and_nothing_else",
            "test_a_tool_that_hangs_fails_at_its_timeout",
            "test_a_thread_that_blocks_blocks_no_other_session",
            "test_a_process_that_a_tool_starts_inherits_no_socket",
        ),
    ),
    36: Case(
        "cancelled during a tool",
        (
            "test_a_tool_is_cancelled_within_five_seconds_when_its_session_is_deleted",
            "test_a_stop_during_a_tool_cancels_the_tool_and_leaves_no_call_open",
        ),
    ),
    37: Case(
        "endless loops",
        (
            "test_an_endless_loop_of_model_and_tool_is_stopped_at_max_steps",
            "test_a_run_that_spends_too_many_tokens_is_stopped_with_max_tokens",
            "test_endless_sub_agents_are_each_stopped_at_their_limit",
            "test_an_agent_that_is_its_own_sub_agent_is_stopped_at_the_maximum_depth",
        ),
    ),
    38: Case(
        "question across many restarts",
        ("engine/runs/test_crash.py::test_a_question_is_answerable_after_a_hundred_restarts",),
    ),
    39: Case(
        "compaction keeps calls and results together",
        (f"{AAP}/test_endpoints.py::test_a_compaction_is_silent_keeps_pairs_whole_and_leaves_the_full_history",),
    ),
    40: Case(
        "cards with scripts",
        (
            "console/test_cards.py::test_a_hostile_card_runs_in_its_frame_and_reaches_nobody",
            "console/test_cards.py::test_the_frame_of_cards_has_no_rights",
            "console/test_cards.py::test_an_action_for_the_application_is_shown_and_not_performed",
        ),
    ),
}
