/** The APIs in which a model can be asked for a turn, by us or by a client of ours. */
export type ApiName = 'chat' | 'responses' | 'messages'
