/** The APIs in which a model can be asked for a turn, by us or by a client of ours. */
export type ApiName = 'chat' | 'responses' | 'messages'

/** The APIs of a gateway's clients. SGLang's own (`/generate`) can only be asked of a model that SGLang serves. */
export type ClientApi = ApiName | 'generate'
