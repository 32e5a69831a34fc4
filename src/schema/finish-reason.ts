/** Why a backend ended a reply. A reply without one did not end: it was cut. */
export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter'
