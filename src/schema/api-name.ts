/** The APIs in which a model can be asked for a turn, by us or by a client of ours. */
export type ApiName = 'chat' | 'responses' | 'messages'

/** Those of a gateway's clients: SGLang's own (`/generate`), too, which only a model that SGLang serves can be asked in. */
export type ClientApi = ApiName | 'generate'
