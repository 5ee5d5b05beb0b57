-- Subscriptions to a card's news.

-- name: notify.inherit
-- A card that a running worker makes has that worker's card's subscribers; they hear of it from now on (P52).
INSERT INTO kanban_notify_subs (
  task_id, platform, chat_id, thread_id, user_id, notifier_profile, delivery_mode, created_at, last_event_id)
SELECT :task_id, platform, chat_id, thread_id, user_id, notifier_profile, delivery_mode, :created_at,
  (SELECT coalesce(max(id), 0) FROM task_events)
FROM kanban_notify_subs WHERE task_id = :parent_id;
