/** Why a backend ended a reply. A reply without a reason did not end: it was cut off. */
export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter'
