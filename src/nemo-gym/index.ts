export { type EpisodeItem, EpisodeItems, episodeItems, type EpisodeMessage, itemPieces } from './episode-items.ts'
export { agentOf, completeParams, hasPlace, ownFields, unknownParams } from './gym-row.ts'
export { episodeName, episodeResponseId, recordItems, storedItemPieces } from './stored-episode.ts'
export { type GymRequest, readRow } from './read-row.ts'
