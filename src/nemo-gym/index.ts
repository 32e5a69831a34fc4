export { agentRefOf, completeParams, hasPlace, ownFields, unknownParams } from './gym-row.ts'
export { episodeName, episodeResponseId, recordItems, RunningEpisode, storedItemPieces } from './stored-episode.ts'
export { fieldsInMetadata, readParams } from './read-row.ts'
export { gymRunName, nemoGym, type NemoGymEnvironment, type NemoGymOptions } from './nemo-gym.ts'
